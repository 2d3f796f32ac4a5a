! Tutorial 1, in Fortran: a simulation that hands over its field step by step.
!
!     gfortran $(forebay config --fortran) 01_producer.f90 $(forebay config --libs) -o producer
!     forebay up -n 2          starts two servers
!     ./producer &             in either order: it waits
!     ./reader                 for its reader, see 02_reader.f90
!
! The field U has 6 x 5 x 4 points in x, y, z.  Forebay never transposes: in C and Python the same bytes are
! U[z, y, x] of shape (4, 5, 6).  A real simulation has many ranks and each puts its part; here one rank puts
! two halves, which is the same to Forebay.
program producer
   use forebay
   use, intrinsic :: iso_fortran_env, only: real64
   implicit none
   integer, parameter :: nx = 6, ny = 5, nz = 4, steps = 5
   type(fb_producer) :: sim
   real(real64) :: u(nx, ny, nz)
   integer :: number, half, first, x, y, z

   ! 1. Join the stream.  The group is found through FOREBAY_GROUP, or group=.  With MPI: this rank, and how
   !    many there are.  The first step begins when one reader that has a name is attached, so that it sees them all;
   !    without wait_for_readers= nobody is waited for, and nothing moves while nobody looks.  Every call takes stat= and
   !    errmsg=; without them an error stops the program.
   call fb_producer_open(sim, 'tutorial', rank=0, size=1, wait_for_readers=1)

   ! 2. Say what there is: the field's name, type and global shape, in Fortran's order.
   call fb_array(sim, 'U', FB_F64, [nx, ny, nz], dims=['x', 'y', 'z'], units='m/s')

   do number = 0, steps - 1
      ! 3. Compute.
      do z = 1, nz
         do y = 1, ny
            do x = 1, nx
               u(x, y, z) = 1000*number + 100*(z - 1) + 10*(y - 1) + (x - 1)
            end do
         end do
      end do

      ! 4. Hand over.  A block is a box of the global array; `offset` is how many elements lie before it.  The array is
      !    yours again on return.  `number` tells apart the blocks of one rank.
      call fb_producer_begin(sim, number, 0.5_real64*number)
      do half = 0, 1
         first = half*nz/2
         call fb_put(sim, 'U', u(:, :, first + 1:first + nz/2), offset=[0, 0, first], number=half)
      end do
      call fb_producer_end(sim)
   end do

   ! 5. Leave: readers are told that the simulation has finished.
   call fb_producer_close(sim)
   print '(i0, a)', steps, ' steps'
end program
