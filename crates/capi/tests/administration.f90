! fb_admin_...: a group of two servers is looked after, and ended.  test_administration.py gives the code of a pipeline as
! the argument.
program administration
   use forebay
   use, intrinsic :: iso_fortran_env, only: real64, error_unit
   implicit none
   type(fb_admin) :: admin
   integer, allocatable :: added(:)
   integer :: stat
   character(1024) :: code, text
   call get_command_argument(1, code)
   call fb_admin_open(admin, timeout=40.0_real64)
   call fb_admin_add_servers(admin, 2, added)
   call check(size(added) == 2 .and. all(added == [2, 3]), 'the new servers')
   call fb_admin_remove_server(admin, 3)
   call fb_admin_remove_server(admin, 3, stat=stat, errmsg=text)
   call check(stat == FB_NOT_FOUND .and. index(text, 'no server3') > 0, 'it has gone')
   call check(fb_error_server() == 3, 'the error is about that server')
   call fb_admin_create_pipeline(admin, 'nothing', trim(code), stream='s', config='{"a": 1}', driven=.true.)
   call check(index(fb_admin_status(admin), '"nothing"') > 0, 'the pipeline is there')
   call fb_admin_destroy_pipeline(admin, 'nothing')
   call fb_admin_heal(admin, stat=stat, errmsg=text)
   call check(stat == FB_CONFLICT, 'all of them answer')
   call check(fb_error_server() == -1, 'the error is about no server')
   call check(fb_result_is_retryable(FB_TIMEOUT), 'trying again may help')
   call check(.not. fb_result_is_retryable(FB_INVALID), 'trying again does not help')
   call fb_admin_shutdown(admin)
   call fb_admin_close(admin)
   deallocate (added)
contains
   subroutine check(good, what)
      logical, intent(in) :: good
      character(*), intent(in) :: what
      if (good) return
      write (error_unit, '(a)') what
      error stop 1
   end subroutine
end program
