! fb_pipeline_...: a pipeline that is driven from Fortran.  test_driving.py creates it under the name that it gives.
program driving
   use forebay
   use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
   implicit none
   type(fb_pipeline) :: handle
   type(fb_request) :: request
   character(255) :: name
   real(real64), target :: u(170, 6)
   integer(int64) :: step, skipped
   integer :: i, workers, outcome
   logical :: ran
   call get_command_argument(1, name)
   call fb_pipeline_open(handle, trim(name), timeout=20.0_real64)
   call fb_array(fb_pipeline_producer(handle), 'U', FB_F64, [170, 6])
   do step = 5, 9
      u = reshape([(real(step + i, real64), i=0, size(u) - 1)], shape(u))
      if (mod(step, 2_int64) == 0) then
         call fb_pipeline_activate(handle, step, 0.5_real64, workers)
         call check(all(fb_pipeline_active(handle) == [step]), 'it is active')
         call fb_pipeline_stage(handle, 'U', u, offset=[0, 0], outcome=outcome)
         call check(outcome == FB_OUTCOME_STAGED, 'it is staged')
         call fb_pipeline_execute(handle, step, ran=ran)
      else
         call fb_pipeline_activate_async(handle, step, 0.5_real64, request)
         call fb_pipeline_stage_async(handle, 'U', u, offset=[0, 0])
         call fb_request_wait(request, workers=workers)
         call fb_request_free(request)
         call fb_pipeline_execute_async(handle, step, request)
         call fb_request_wait(request, ran=ran)
         call fb_request_free(request)
      end if
      call check(workers == 2 .and. ran, 'both workers ran')
      call fb_pipeline_deactivate(handle, int(step))   ! of either kind
   end do
   call check(.not. fb_producer_lost(fb_pipeline_producer(handle), skipped) .and. skipped == 0, 'nothing is lost')
   call fb_pipeline_close(handle)
contains
   subroutine check(good, what)
      logical, intent(in) :: good
      character(*), intent(in) :: what
      if (good) return
      write (error_unit, '(a)') what
      error stop 1
   end subroutine
end program
