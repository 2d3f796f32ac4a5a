! Tutorial 2, in Fortran: a reader that follows a simulation.
!
!     gfortran $(forebay config --fortran) 02_reader.f90 $(forebay config --libs) -o reader
!
! It may be started before the simulation, or after it: that one waits for it.  It knows nothing of the
! simulation's ranks and blocks: it asks for the region that it wants.
program reader
   use forebay
   use, intrinsic :: iso_fortran_env, only: real64, output_unit
   implicit none
   integer, parameter :: nx = 6, ny = 5, nz = 4
   type(fb_consumer) :: viewer
   type(fb_step) :: step
   real(real64) :: u(nx, ny, nz), row(3, 1, 1)

   ! 1. Attach to the stream, which need not exist yet, and say what is needed: here a run from its first step on.
   call fb_consumer_open(viewer, 'tutorial', fields=['U'], name='viewer', start=FB_START_RUN)
   print '(a)', 'waiting for steps'
   flush (output_unit)

   ! 2. Step after step, until the simulation ends; if it crashes, that is an error, which stops the program.
   do while (fb_consumer_next(viewer, step))
      ! 3. All of the field: as much as the array holds, assembled from the field's blocks, whichever server
      !    holds them.
      call fb_get(step, 'U', u)

      ! 4. A part of it: from the third to the fifth x of the fourth row in the second plane; `offset` counts from 0.
      call fb_get(step, 'U', row, offset=[2, 3, 1])

      print '(a, i0, a, f4.1)', 'step ', step%number, ', time ', step%time
      print '(a, f10.1)', '  sum   ', sum(u)
      print '(a, f10.1)', '  value ', u(2, 5, 3)
      print '(a, 3f10.1)', '  row   ', row
      call fb_step_release(step)   ! its memory may be used again
   end do

   ! 5. Detach.
   call fb_consumer_close(viewer)
end program
