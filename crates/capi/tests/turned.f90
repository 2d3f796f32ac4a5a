! The Fortran module: shapes, offsets, ghosts and sections are turned round and arrive where they should.
! What C sees of them is tested by the tutorial's pairs of languages.
module placing
   use forebay
   use, intrinsic :: iso_c_binding
   implicit none
contains
   function on_the_last(context, block) bind(C) result(server)
      type(c_ptr), value :: context
      type(fb_to_place), intent(in) :: block
      integer(c_int64_t) :: server
      integer, pointer :: calls
      integer(c_int32_t), pointer :: servers(:)
      call c_f_pointer(context, calls)
      call c_f_pointer(block%servers, servers, [block%servers_count])
      calls = calls + 1
      server = servers(size(servers))
   end function
end module

program turned
   use forebay
   use placing, only: on_the_last
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env
   implicit none
   integer, parameter :: nx = 6, ny = 5, nz = 4
   type :: cell
      integer(int32) :: kind
      real(real64) :: rho
      complex(real64) :: wave
      real(real32) :: energy
   end type
   character(64) :: name
   character(512) :: text
   integer :: stat

   call get_command_argument(1, name)
   select case (name)
   case ('kinds')
      call kinds
   case ('sections')
      call sections
   case ('expressions')
      call expressions(waits=.true.)
   case ('expressions_asynchronously')
      call expressions(waits=.false.)
   case ('components')
      call components
   case ('ranks')
      call ranks
   case ('addresses')
      call addresses
   case ('asynchronous')
      call asynchronous
   case ('views')
      call views
   case ('fields')
      call fields
   case ('contracts')
      call contracts
   case ('placements')
      call placements
   case ('attributes')
      call attributes
   case ('polling')
      call polling
   case ('lying')
      call lying
   case ('looking')
      call looking
   case ('watching')
      call watching
   case ('particles')
      call particles
   case ('spaces')
      call spaces
   case ('far')
      call far
   case ('runs')
      call runs
   case ('ends')
      call ends
   case ('errors')
      call errors
   case default
      error stop 'usage: turned CASE'
   end select

contains

   ! The status of a group, by a handle of its own; empty after an error.
   function status_of(group, stat, errmsg) result(json)
      character(*), intent(in), optional :: group
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(fb_admin) :: admin
      json = ''
      call fb_admin_open(admin, group, stat=stat, errmsg=errmsg)
      if (present(stat)) then
         if (stat /= FB_OK) return
      end if
      json = fb_admin_status(admin, stat, errmsg)
      call fb_admin_close(admin)
   end function

   subroutine check(condition, what)
      logical, intent(in) :: condition
      character(*), intent(in) :: what
      if (condition) return
      write (error_unit, '(2a)') 'not so: ', what
      error stop 1
   end subroutine

   ! The last call failed with this kind and a text that has this part.
   subroutine fails(kind, part)
      integer, intent(in) :: kind
      character(*), intent(in) :: part
      if (stat == kind .and. index(text, part) > 0) return
      write (error_unit, '(6a)') 'expected ', fb_result_name(kind), ' with ', part, ', but '//fb_result_name(stat)//': ', trim(text)
      error stop 1
   end subroutine

   function at(x, y, z) result(value)
      integer, intent(in) :: x, y, z
      integer :: value
      value = 100*z + 10*y + x
   end function

   subroutine open_both(sim, viewer)
      type(fb_producer), intent(out) :: sim
      type(fb_consumer), intent(out) :: viewer
      call fb_consumer_open(viewer, trim(name), timeout=20.0_real64)
      call fb_producer_open(sim, name, timeout=20.0_real64)
   end subroutine

   subroutine kinds
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      integer(int32) :: i4(2, 3), j4(2, 3)
      integer(int64) :: i8(2, 3), j8(2, 3)
      real(real32) :: r4(2, 3), s4(2, 3)
      real(real64) :: r8(2, 3), s8(2, 3)
      complex(real32) :: c4(2, 3), d4(2, 3)
      complex(real64) :: c8(2, 3), d8(2, 3)
      i4 = reshape([1, -2, 3, -4, 5, -6], [2, 3])
      i8 = i4*10000000000_int64
      r4 = i4/4.0
      r8 = i4/8.0_real64
      c4 = cmplx(r4, 2*r4)
      c8 = cmplx(r8, -r8, real64)
      call open_both(sim, viewer)
      call fb_array(sim, 'i4', FB_I32, [2, 3], every=1)
      call fb_array(sim, 'i8', FB_I64, [2, 3], units='1')
      call fb_array(sim, 'r4', FB_F32, [2, 3], dims=['x ', 'yy'], spacing=[1.0_real64, 2.0_real64])
      call fb_array(sim, 'r8', FB_F64, [2, 3], origin=[1.0_real64, 2.0_real64], association=FB_ASSOCIATION_VERTEX)
      call fb_array(sim, 'c4', FB_C64, [2, 3])
      call fb_array(sim, 'c8', FB_C128, [2, 3])
      call fb_producer_begin(sim, 5000000000_int64, 0.5_real64)
      call check(fb_demanded(sim, 'i4'), 'i4 is wanted')
      call fb_put(sim, 'i4', i4, offset=[0, 0])
      call fb_put(sim, 'i8', i8, offset=[0, 0])
      call fb_put(sim, 'r4', r4, offset=[0, 0])
      call fb_put(sim, 'r8', r8, offset=[0, 0])
      call fb_put(sim, 'c4', c4, offset=[0, 0])
      call fb_put(sim, 'c8', c8, offset=[0, 0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(step%number == 5000000000_int64 .and. step%time == 0.5_real64 .and. step%run == 1, 'its number')
      call check(.not. (step%torn .or. step%rewound) .and. step%missed == 0, 'it is whole')
      call check(all(fb_step_shape(step, 'i4') == [2, 3]), 'the shape')
      call fb_get(step, 'i4', j4)
      call fb_get(step, 'i8', j8)
      call fb_get(step, 'r4', s4)
      call fb_get(step, 'r8', s8)
      call fb_get(step, 'c4', d4)
      call fb_get(step, 'c8', d8)
      call check(all(i4 == j4) .and. all(i8 == j8) .and. all(r4 == s4) .and. all(r8 == s8), 'numbers')
      call check(all(c4 == d4) .and. all(c8 == d8), 'complex numbers')
      call fb_step_release(step)
      call fb_flush(sim)
      call check(.not. fb_producer_lost(sim), 'all is well')
      call fb_producer_close(sim)
      call check(.not. fb_consumer_next(viewer, step, stat=stat), 'it has ended')
      call check(stat == FB_ENDED, 'FB_ENDED')
      call fb_consumer_close(viewer)
   end subroutine

   ! Blocks as sections of larger arrays, with ghosts, in pieces; read into sections.
   subroutine sections
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      real(real64) :: padded(0:nx, -1:ny, nz + 3), sparse(2*nx, ny, 2), out(nx + 1, 2*ny, nz), some(2, 3, 2)
      real(real64), allocatable :: nothing(:, :, :)
      integer :: x, y, z
      padded = -1
      sparse = -1
      do z = 1, nz
         do y = 1, ny
            do x = 1, nx
               if (z <= 2) padded(x, y, z + 1) = at(x, y, z)
               if (z > 2) sparse(2*x, ny + 1 - y, z - 2) = at(x, y, z)
            end do
         end do
      end do
      call open_both(sim, viewer)
      call fb_array(sim, 'U', FB_F64, [nx, ny, nz], dims=['x', 'y', 'z'])
      call fb_producer_begin(sim, 1, 0.0_real64)
      ! The interior of a larger array, of which z = 1 has a ghost layer on either side in x and y.
      call fb_put(sim, 'U', padded(1:nx, 1:ny, 3:3), offset=[0, 0, 1], number=1)
      call fb_put(sim, 'U', padded(:, :, 1:4), offset=[0, 0, 0], ghost_low=[1, 2, 1], ghost_high=[0, 0, 2], number=0)
      ! Every other x, y backwards.
      call fb_put(sim, 'U', sparse(2:2*nx:2, ny:1:-1, :), offset=[0, 0, 2], number=2)
      allocate (nothing(nx, 0, nz))
      call fb_put(sim, 'U', nothing, offset=[0, 0, 0], number=3)
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      out = -2
      call fb_get(step, 'U', out(2:, 2*ny:2:-2, :))
      do z = 1, nz
         do y = 1, ny
            do x = 1, nx
               call check(out(x + 1, 2*ny + 2 - 2*y, z) == at(x, y, z), 'an element')
            end do
         end do
      end do
      call check(all(out(1, :, :) == -2) .and. all(out(:, 1::2, :) == -2), 'nothing else is written')
      call fb_get(step, 'U', some, offset=[1, 2, 0], every=[3, 1, 2])
      do z = 1, 2
         do y = 1, 3
            do x = 1, 2
               call check(some(x, y, z) == at(3*x - 1, y + 2, 2*z - 1), 'a selected element')
            end do
         end do
      end do
      call fb_get(step, 'U', nothing, offset=[0, 0, 0])
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   subroutine put_either(sim, field, array, waits)
      type(fb_producer), intent(in) :: sim
      character(*), intent(in) :: field
      real(real64), intent(in) :: array(..)
      logical, intent(in) :: waits
      integer, parameter :: zeros(4) = 0
      if (waits) call fb_put(sim, field, array, offset=zeros(:rank(array)))
      if (.not. waits) call fb_put_async(sim, field, array, offset=zeros(:rank(array)))
   end subroutine

   function doubled(a) result(twice)
      real(real64), intent(in) :: a(:)
      real(real64) :: twice(0:size(a) - 1)
      twice = 2*a
   end function

   ! What the compiler makes a copy of for the call: expressions, function results, picked elements.
   subroutine expressions(waits)
      logical, intent(in) :: waits
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_space) :: space
      real(real64) :: u(0:299), v(20, 15), w(3, 20, 5), x(2, 3, 10, 5), u_back(300), v_back(20, 15), w_back(3, 20, 5)
      real(real64) :: x_back(2, 3, 10, 5), turned_back(15, 20)
      real(real32) :: single(300)
      integer(int32) :: i4(300), i4_back(300)
      integer :: i
      single = [(real(i), i=1, 300)]
      i4 = [(i, i=1, 300)]
      u = i4
      v = reshape(u, shape(v)); w = reshape(u, shape(w)); x = reshape(u, shape(x))
      call fb_consumer_open(viewer, trim(name), timeout=20.0_real64)
      call fb_producer_open(sim, name, timeout=20.0_real64, transport='tcp')
      call fb_array(sim, 'doubled', FB_F64, [300])
      call fb_array(sim, 'single', FB_F64, [300])
      call fb_array(sim, 'picked', FB_F64, [300])
      call fb_array(sim, 'result', FB_F64, [300])
      call fb_array(sim, 'i4', FB_I32, [300])
      call fb_array(sim, 'two', FB_F64, [15, 20])
      call fb_array(sim, 'three', FB_F64, [3, 20, 5])
      call fb_array(sim, 'four', FB_F64, [2, 3, 10, 5])
      call fb_producer_begin(sim, 1, 0.0_real64)
      call put_either(sim, 'doubled', 2*u, waits)
      call put_either(sim, 'single', real(single, real64), waits)
      call put_either(sim, 'picked', u([(modulo(7*i, 300), i=0, 299)]), waits)
      call put_either(sim, 'result', doubled(u), waits)
      call put_either(sim, 'two', transpose(v), waits)
      call put_either(sim, 'three', -w, waits)
      call put_either(sim, 'four', (x), waits)
      if (waits) call fb_put(sim, 'i4', i4 + 1, offset=[0])
      if (.not. waits) call fb_put_async(sim, 'i4', i4 + 1, offset=[0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_get(step, 'doubled', u_back)
      call check(all(u_back == 2*u), '2*u')
      call fb_get(step, 'single', u_back)
      call check(all(u_back == u), 'real(single, real64)')
      call fb_get(step, 'picked', u_back)
      call check(all(u_back == [(real(modulo(7*i, 300) + 1, real64), i=0, 299)]), 'by a vector subscript')
      call fb_get(step, 'result', u_back)
      call check(all(u_back == 2*u), 'a function result')
      call fb_get(step, 'i4', i4_back)
      call check(all(i4_back == i4 + 1), 'i4 + 1')
      call fb_get(step, 'two', turned_back)
      call check(all(turned_back == transpose(v)), 'transpose(v)')
      call fb_get(step, 'three', w_back)
      call check(all(w_back == -w), '-w')
      call fb_get(step, 'four', x_back)
      call check(all(x_back == x), '(x)')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
      call fb_space_open(space, timeout=20.0_real64)
      call fb_space_put(space, trim(name), 3*v, step=1_int64)
      call fb_space_get(space, trim(name), v_back, step=1_int64)
      call check(all(v_back == 3*v), '3*v in the space')
      call fb_space_close(space)
   end subroutine

   ! One component of an array of a derived type, as it lies among the others: put from, and read into.
   subroutine components
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_space) :: space
      type(cell), target :: p(0:199), c(10, 20)
      real(real64), pointer :: rho(:)
      integer :: i
      p = [(cell(i, 2.0_real64*i, cmplx(i, -i, real64), 3.0*real(i)), i=0, 199)]
      c = reshape(p, shape(c))
      rho => p%rho
      call open_both(sim, viewer)
      call fb_array(sim, 'kind', FB_I32, [200])
      call fb_array(sim, 'rho', FB_F64, [10, 20])
      call fb_array(sim, 'back', FB_F64, [200])
      call fb_array(sim, 'pointer', FB_F64, [200])
      call fb_array(sim, 'wave', FB_C128, [200])
      call fb_array(sim, 'energy', FB_F32, [5, 7])
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'kind', p%kind, offset=[0])
      call fb_put(sim, 'rho', c%rho, offset=[0, 0])
      call fb_put(sim, 'back', p(199:0:-1)%rho, offset=[0])
      call fb_put(sim, 'pointer', rho, offset=[0])
      call fb_put(sim, 'wave', p%wave, offset=[0])
      call fb_put_async(sim, 'energy', c(2:10:2, 20:1:-3)%energy, offset=[0, 0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      block
         type(cell) :: q(200), d(10, 20)
         real(real64) :: back(200)
         real(real32) :: energy(5, 7)
         q = cell(-1, -2.0_real64, (-3.0_real64, -4.0_real64), -5.0)
         d = cell(-1, -2.0_real64, (-3.0_real64, -4.0_real64), -5.0)
         call fb_get(step, 'rho', d%rho)
         call check(all(d%rho == c%rho), 'rho is read')
         call check(all(d%kind == -1) .and. all(d%wave == (-3, -4)) .and. all(d%energy == -5), 'and nothing beside it')
         call fb_get(step, 'wave', q%wave)
         call check(all(q%wave == p%wave), 'wave is read')
         call check(all(q%kind == -1) .and. all(q%rho == -2) .and. all(q%energy == -5), 'and nothing beside it')
         call fb_get(step, 'kind', q(200:1:-1)%kind)
         call check(all(q%kind == [(i, i=199, 0, -1)]), 'kind is read backwards')
         call fb_get(step, 'back', back)
         call check(all(back == [(2.0_real64*i, i=199, 0, -1)]), 'rho backwards')
         call fb_get(step, 'pointer', back)
         call check(all(back == p%rho), 'through a pointer')
         call fb_get(step, 'energy', energy)
         call check(all(energy == c(2:10:2, 20:1:-3)%energy), 'a section of energy')
         call fb_space_open(space, timeout=20.0_real64)
         call fb_space_put(space, trim(name), c%rho, step=1_int64)
         d%rho = 0
         call fb_space_get(space, trim(name), d%rho, step=1_int64)
         call check(all(d%rho == c%rho) .and. all(d%energy == -5), 'rho in the space')
         call fb_space_close(space)
      end block
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   subroutine ranks
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      real(real32) :: scalar, one(5), four(2, 3, 1, 4), back, back_one(5), back_four(2, 3, 1, 4), plane(3, 2)
      integer :: i
      scalar = 42
      one = [(real(i), i=1, 5)]
      four = reshape([(real(i), i=1, 24)], [2, 3, 1, 4])
      call open_both(sim, viewer)
      call fb_array(sim, 'scalar', FB_F32, ndim=0)
      call fb_array(sim, 'one', FB_F32, [5])
      call fb_array(sim, 'four', FB_F32, [2, 3, 1, 4])
      call fb_array(sim, 'unplaced', FB_F32, ndim=2)
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'scalar', scalar)
      call fb_put(sim, 'one', one(4:5), offset=[3])
      call fb_put(sim, 'one', one(:3), offset=[0], number=1)
      call fb_put(sim, 'four', four, offset=[0, 0, 0, 0])
      plane = 7
      call fb_put(sim, 'unplaced', plane)
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step, timeout=20.0_real64), 'there is a step')
      call fb_get(step, 'scalar', back)
      call fb_get(step, 'one', back_one)
      call fb_get(step, 'four', back_four)
      call check(back == 42 .and. all(back_one == one) .and. all(back_four == four), 'all ranks')
      call check(size(fb_step_shape(step, 'scalar')) == 0, 'a scalar has no extents')
      call check(all(fb_step_shape(step, 'four') == [2, 3, 1, 4]), 'the shape of four')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! Other types and more dimensions go by address; memory to compute in place.
   subroutine addresses
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      integer(int16), target :: five(2, 1, 3, 2, 4), back(2, 1, 3, 2, 4), part(2, 2)
      real(real64), pointer :: u(:, :)
      real(real64) :: v(300, 4)
      type(c_ptr) :: address
      integer :: i
      five = reshape([(int(i, int16), i=1, 48)], [2, 1, 3, 2, 4])
      call open_both(sim, viewer)
      call fb_array(sim, 'five', FB_I16, [2, 1, 3, 2, 4])
      call fb_array(sim, 'u', FB_F64, [300, 4])
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put_address(sim, 'five', FB_I16, c_loc(five), shape(five, int64), offset=[0, 0, 0, 0, 0])
      call fb_alloc(sim, 'u', FB_F64, [302, 3], address, offset=[0, 1], ghost_low=[2, 0])
      call c_f_pointer(address, u, [302, 3])
      do i = 1, 302
         u(i, :) = i - 2 + [1000, 2000, 3000]
      end do
      call fb_commit(sim, address)
      call fb_alloc(sim, 'u', FB_F64, [300, 1], address, offset=[0, 0], number=1)
      call fb_abort(sim, address)
      v(:, 1) = -1
      call fb_put(sim, 'u', v(:, 1:1), offset=[0, 0], number=1)
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_get_address(step, 'five', FB_I16, c_loc(back), shape(back, int64))
      call check(all(back == five), 'five dimensions')
      call fb_get_address(step, 'five', FB_I16, c_loc(part), [1_int64, 1_int64, 2_int64, 1_int64, 2_int64], &
                          strides=[2_int64, 2_int64, 4_int64, 2_int64, 2_int64], offset=[1, 0, 0, 1, 0], every=[1, 1, 2, 1, 3])
      call check(all(part == reshape(five([2], [1], [1, 3], [2], [1, 4]), [2, 2], order=[2, 1])), 'a part of it')
      call fb_get(step, 'u', v)
      call check(all(v(:, 1) == -1) .and. v(1, 2) == 1001 .and. v(300, 2) == 1300 .and. v(7, 4) == 3007, 'in place')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! Puts whose answer is not waited for, over TCP; by section and by address.
   subroutine asynchronous
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      real(real64) :: u(400, 3), back(400, 3)
      integer(int16), target :: i2(700), back_i2(700)
      integer(int64) :: dropped
      integer :: i, number
      call fb_consumer_open(viewer, trim(name), timeout=20.0_real64)
      call fb_producer_open(sim, name, timeout=20.0_real64, transport='tcp', placement=FB_PLACEMENT_BY_BLOCK)
      call fb_array(sim, 'u', FB_F64, [400, 3])
      call fb_array(sim, 'i2', FB_I16, [700])
      call fb_wait(sim, stat=stat, errmsg=text)
      call fails(FB_STEP_ORDER, 'outside a step')
      do number = 1, 2
         u = reshape([(real(i + 7*number, real64), i=1, 1200)], [400, 3])
         i2 = [(int(i - number, int16), i=1, 700)]
         call fb_producer_begin(sim, number, 0.0_real64)
         do i = 1, 3
            call fb_put_async(sim, 'u', u(:, i:i), offset=[0, i - 1], number=i)
         end do
         call fb_put_async_address(sim, 'i2', FB_I16, c_loc(i2), [700_int64], offset=[0])
         call fb_put_async(sim, 'u', u, offset=[0], stat=stat, errmsg=text)
         call fails(FB_OUT_OF_BOUNDS, 'offset has 1 entries')
         if (number == 1) then
            call fb_wait(sim, dropped)
            call check(dropped == 0, 'nothing is dropped')
         end if
         call fb_producer_end(sim)
         call check(fb_consumer_next(viewer, step), 'there is a step')
         call fb_get(step, 'u', back)
         call fb_get_address(step, 'i2', FB_I16, c_loc(back_i2), [700_int64])
         call check(all(back == u) .and. all(back_i2 == i2), 'what was put')
         call fb_step_release(step)
      end do
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! Blocks where they lie, with all that is said of them.
   subroutine views
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_view) :: view
      real(real64) :: u(0:nx, ny + 2, 2)
      real(real64), pointer :: shown(:, :, :)
      integer(int32) :: points(5)
      type(fb_stats) :: stats
      integer(int32), pointer :: shown_points(:)
      integer :: i
      u = reshape([(real(i, real64), i=1, size(u))], shape(u))
      points = [(i*i, i=1, 5)]
      call fb_consumer_open(viewer, trim(name), needs=[fb_need('U', stats=FB_STATS_ALONG), fb_need('points')], &
                            timeout=20.0_real64)
      call fb_producer_open(sim, name, timeout=20.0_real64)
      call fb_array(sim, 'U', FB_F64, [nx, ny, nz])
      call fb_array(sim, 'points', FB_I32, ndim=1)
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'U', u, offset=[0, 0, 2], ghost_low=[1, 0, 0], ghost_high=[0, 2, 0], number=12)
      call fb_put(sim, 'points', points)
      call fb_put(sim, 'points', points(1:0), number=1)
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(fb_step_block_count(step, 'U') == 1, 'one block')
      call check(fb_step_block_count(step, 'points') == 2, 'two blocks')
      call fb_step_block(step, 'U', 1_int64, view)
      call check(view%placed .and. view%dtype == FB_F64 .and. view%rank == 0 .and. view%number == 12, 'what it is')
      call check(all(view%offset == [0, 0, 2]) .and. all(view%shape == [nx, ny, 2]), 'where it is')
      call check(all(view%ghost_low == [1, 0, 0]) .and. all(view%ghost_high == [0, 2, 0]), 'its ghosts')
      call check(all(view%stored == shape(u)) .and. view%bytes == 8*size(u), 'how it lies')
      call c_f_pointer(view%data, shown, view%stored)
      call check(all(shown == u), 'its elements')
      ! Of x from 1, y up to ny: what is left are ghosts.
      call check(view%has_stats .and. view%min == 2 .and. view%max == u(nx, ny, 2), 'its bounds')
      call check(view%sum == sum(u(1:, :ny, :)) .and. view%count == nx*ny*2 .and. view%nan == 0, 'its sum')
      call fb_step_stats(step, 'U', stats)
      call check(stats%sum == view%sum .and. stats%variance == view%variance .and. view%tiles == 0, 'of the field')
      call fb_step_stats(step, 'points', stats, stat, text)
      call fails(FB_NOT_COVERED, 'asked for')
      call fb_step_block(step, 'points', 1_int64, view)
      call check(.not. view%placed .and. size(view%stored) == 1, 'unplaced')
      call check(.not. view%has_stats .and. view%count == 0, 'without statistics')
      call c_f_pointer(view%data, shown_points, view%stored)
      call check(all(shown_points == points), 'its points')
      call fb_step_block(step, 'points', 2_int64, view)
      call check(.not. c_associated(view%data) .and. view%bytes == 0, 'an empty block')
      call fb_step_block(step, 'points', 3_int64, view, stat, text)
      call fails(FB_NOT_FOUND, 'it has 2')
      call fb_step_block(step, 'points', 0_int64, view, stat, text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 1')
      call check(fb_step_block_count(step, 'V', stat, text) == 0, 'no blocks')
      call fails(FB_NOT_FOUND, 'it has')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! Which server holds a block, as a function says it.
   subroutine placements
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_view) :: view
      real(real64) :: u(20, 30)
      integer :: asked
      integer, target :: calls
      u = 1
      calls = 0
      call fb_consumer_open(viewer, 'placements', timeout=20.0_real64)
      call fb_producer_open(sim, 'placements', placement=FB_PLACEMENT_FUNCTION, place=c_funloc(on_the_last), &
                            place_context=c_loc(calls))
      call fb_array(sim, 'U', FB_F64, [20, 30])
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'U', u(:, :15), offset=[0, 0])
      call fb_put(sim, 'U', u(:, 16:), offset=[0, 15], number=1)
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      do asked = 1, 2
         call fb_step_block(step, 'U', int(asked, int64), view)
         call check(view%server == 1, 'it is on the last server')
      end do
      call check(calls == 2, 'it was asked for each block')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! What a reader is told of a field: in Fortran's order, as it was said.
   ! A contract is in Fortran's order, too.
   subroutine contracts
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_view) :: view
      real(real64), pointer :: column(:, :)
      real(real64) :: u(nx, ny)
      integer(int64) :: run, next
      integer :: i, outcome
      integer(int64), allocatable :: begins(:), lengths(:)
      u = reshape([(real(i, real64), i = 1, nx*ny)], [nx, ny])
      call fb_consumer_open(viewer, name, needs=[ &
         fb_need('U', offset=[2_int64, 1_int64], shape=[1_int64, 2_int64], stride=[1_int64, 2_int64]), &
         fb_need('never', optional=.true.)], timeout=20.0_real64)
      call fb_producer_open(sim, name)
      call fb_array(sim, 'U', FB_F64, [nx, ny])
      call fb_producer_begin(sim, 0, 0.0_real64)
      call fb_put(sim, 'U', u, offset=[0, 0], outcome=outcome)
      call check(outcome == FB_OUTCOME_STAGED, 'its part was staged')
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(fb_step_block_count(step, 'U') == 1, 'one part')
      call fb_step_block(step, 'U', 1_int64, view)
      call check(all(view%offset == [2, 1]) .and. all(view%shape == [1, 2]) .and. all(view%step == [1, 2]), 'its box')
      call c_f_pointer(view%data, column, view%stored)
      call check(column(1, 1) == u(3, 2) .and. column(1, 2) == u(3, 4), 'its elements')
      call check(fb_step_mine_count(step, 'U') == 1, 'all blocks are those of the only rank')
      call fb_step_mine(step, 'U', 1_int64, view)
      call check(all(view%offset == [2, 1]) .and. all(view%shape == [1, 2]), 'the same')
      call fb_step_mine(step, 'U', 0_int64, view, stat, text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 1')
      call fb_step_mine_region(step, 'U', begins, lengths, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'assign ''slab''')
      call fb_get(step, 'U', u, offset=[0, 0], stat=stat, errmsg=text)
      call fails(FB_NOT_COVERED, 'contract')
      call fb_step_release(step)
      call fb_consumer_need(viewer, needs=[fb_need('U', shape=[2, 1])], run=run, step=next)
      call check(run == fb_producer_run(sim) .and. next == 1, 'from when on another contract holds')
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'U', u, offset=[0, 0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is another step')
      call fb_step_block(step, 'U', 1_int64, view)
      call check(all(view%offset == 0) .and. all(view%shape == [2, 1]), 'its new box')
      call fb_step_release(step)
      call fb_consumer_need(viewer, fields=['nothing'], stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'nothing')
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
      call fb_consumer_open(viewer, name, needs=[fb_need('U', offset=[2])], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'has no shape')
      call fb_consumer_open(viewer, name, needs=[fb_need('U', shape=[1, 2], stride=[1])], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'stride has 1 entries for 2')
      call fb_consumer_open(viewer, name, fields=['U'], needs=[fb_need('U')], stat=stat, errmsg=text)
      call fails(FB_INVALID, 'one of them')
   end subroutine

   subroutine fields
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer, sharer
      type(fb_step) :: step, shared
      type(fb_field_info) :: info
      integer(int64) :: run, next
      integer :: outcome
      logical :: flags(2)
      logical, allocatable :: flags_back(:)
      type(fb_label), allocatable :: texts(:)
      real(real64) :: u(nx, ny)
      u = 1
      call open_both(sim, viewer)
      call fb_consumer_open(sharer, trim(name), name='w', share=FB_SHARE_ROUND_ROBIN, timeout=20.0_real64)
      call fb_array(sim, 'U', FB_F64, [nx, ny], dims=['x ', 'yy'], spacing=[0.5_real64, 2.0_real64], units='m/s', &
                    association=FB_ASSOCIATION_VERTEX, periodic=[.true., .false.], refinement=[2, 4])
      call fb_array(sim, 'points', FB_I32, ndim=1)
      call fb_array(sim, 'mesh', FB_F64, [nx], is_static=.true.)
      flags = [.true., .false.]
      call fb_attr(sim, 'flags', flags)
      call fb_attr(sim, 'names', ['one  ', 'three'], field='U')
      call fb_producer_begin(sim, 3, 0.0_real64)
      call fb_put(sim, 'U', u, offset=[0, 0], outcome=outcome)
      call check(outcome == FB_OUTCOME_STAGED, 'it was staged')
      call fb_put(sim, 'points', [1, 2, 3])
      call fb_put(sim, 'mesh', u(:, 1), offset=[0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(fb_step_field_name(step, 1) == 'U', 'the name of the first')
      call check(fb_step_field_name(step, 2) == 'points', 'the name of the second')
      call check(fb_step_field_name(step, 3) == 'mesh', 'the name of the static one')
      call check(fb_step_field_name(step, 4, stat, text) == '', 'no fourth field')
      call fails(FB_NOT_FOUND, 'the step has 3')
      call fb_step_field(step, 'mesh', info)
      call check(info%is_static, 'it belongs to the run')
      call fb_step_field(step, 'U', info)
      call check(info%name == 'U' .and. info%dtype == FB_F64 .and. info%ndim == 2 .and. info%units == 'm/s', 'what it is')
      call check(.not. info%is_static, 'it belongs to the step')
      call check(info%placed .and. all(info%shape == [nx, ny]) .and. info%association == FB_ASSOCIATION_VERTEX, 'its shape')
      call check(info%dims(1)%text == 'x' .and. info%dims(2)%text == 'yy' .and. size(info%dims) == 2, 'its dimensions')
      call check(all(info%spacing == [0.5_real64, 2.0_real64]) .and. size(info%origin) == 0, 'its spacing')
      call check(all(info%periodic .eqv. [.true., .false.]) .and. all(info%refinement == [2, 4]), 'its domain')
      call fb_step_field(step, 'points', info)
      call check(.not. info%placed .and. size(info%shape) == 0 .and. info%ndim == 1 .and. size(info%dims) == 0, 'unplaced')
      call check(size(fb_step_shape(step, 'points', stat, text)) == 0, 'no shape')
      call fails(FB_OUT_OF_BOUNDS, 'no global shape')
      call fb_step_field(step, 'none', info, stat, text)
      call fails(FB_NOT_FOUND, 'none')
      call fb_attr_get(step, 'flags', flags_back)
      call check(size(flags_back) == 2 .and. all(flags_back .eqv. flags), 'a list of logicals')
      call fb_attr_get(step, 'names', texts, field='U')
      call check(size(texts) == 2 .and. texts(1)%text == 'one' .and. texts(2)%text == 'three', 'a list of texts')
      call check(fb_attr_key(step, 1) == 'flags', 'the key of the stream')
      call check(fb_attr_key(step, 1, field='U') == 'names', 'the key of the field')
      call check(fb_attr_key(step, 2, stat=stat, errmsg=text) == '', 'no second key')
      call fails(FB_NOT_FOUND, 'there are 1')
      call fb_step_release(step)
      call check(fb_consumer_next(sharer, shared), 'it is given to the only one of its name')
      call check(shared%number == 3 .and. shared%attempt == 0, 'for the first time')
      call fb_step_release(shared)
      call fb_consumer_close(sharer)
      call fb_consumer_cursor(viewer, run, next)
      call check(run == fb_producer_run(sim) .and. next == 4, 'where another reader goes on')
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   subroutine lying
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_view) :: view
      real(real64), target :: x(2, 3), some(2, 2)
      real(real64) :: low(2), high(2), outer(2)
      real(real64), allocatable :: from(:), to(:)
      call open_both(sim, viewer)
      call fb_array(sim, 'U', FB_F64, shape=[3, 2], spacing=[2.0_real64, 0.5_real64])
      call fb_particles(sim, 'ions', ['x'], [FB_F64], ndims=[2])
      call fb_rank_bounds(sim, 2)
      call fb_producer_begin(sim, 0)
      x = reshape([real(real64) :: 0, 1, 2, 3, 4, 5], [2, 3])
      call fb_put(sim, 'U', reshape(x, [3, 2]), offset=[0, 0])
      call fb_put(sim, 'ions/x', x)
      call fb_put_rank_bounds(sim, [0.0_real64, 0.0_real64], [1.0_real64, 2.0_real64], ghost_low=[-1.0_real64, 0.0_real64])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_step_block(step, 'U', 1_int64, view)
      call fb_view_bounds(step, 'U', view, from, to)
      call check(all(from == [-1.0_real64, -0.25_real64]) .and. all(to == [5.0_real64, 0.75_real64]), 'where a block lies')
      call fb_step_rank_bounds(step, 0, low, high, ghost_low=outer)
      call check(high(2) == 2 .and. low(1) == 0 .and. outer(1) == -1, 'where a rank is')
      call check(fb_step_row_count(step, 'ions/x') == 3, 'how many rows there are')
      call fb_get_rows_address(step, 'ions/x', FB_F64, c_loc(some), 1_int64, [2_int64, 2_int64])
      call check(some(1, 1) == 2 .and. some(2, 2) == 5, 'rows')
      call fb_get_rows_address(step, 'ions/x', FB_F64, c_loc(some), 2_int64, [2_int64, 2_int64], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'outside')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   subroutine polling
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      call open_both(sim, viewer)
      call fb_array(sim, 'n', FB_I32, ndim=0)
      call check(.not. fb_consumer_poll(viewer, step), 'nothing is there')
      call fb_producer_begin(sim, 3)
      call fb_put(sim, 'n', 7)
      call fb_producer_end(sim)
      do while (.not. fb_consumer_poll(viewer, step))
      end do
      call check(step%number == 3, 'the step is there')
      call fb_step_release(step)
      call fb_producer_close(sim)
      stat = FB_OK
      do while (stat == FB_OK)
         call check(.not. fb_consumer_poll(viewer, step, stat=stat), 'no other one comes')
      end do
      call check(stat == FB_ENDED, 'the end is told')
      call fb_consumer_close(viewer)
   end subroutine

   subroutine watching
      type(fb_subscription) :: hot
      type(fb_event) :: event
      type(fb_producer) :: sim
      type(fb_admin) :: admin
      type(fb_step) :: step, again
      real(real64) :: values(2, 3)
      integer(int64) :: number, run, from, cursor
      integer :: i
      call fb_subscribe(hot, 'm = max(U[x=1]); m > 1', stream=name, name='hot', keep_before=1, timeout=20.0_real64)
      call check(fb_subscription_name(hot) == 'hot', 'its name')
      call fb_producer_open(sim, name, keep=4)
      call fb_array(sim, 'U', FB_F64, shape=[2_int64, 3_int64], dims=['x', 'y'])
      call fb_subscription_wait_active(hot, run, from)
      call check(run == 1 .and. from == 0, 'it watches from the first step on')
      do number = 0, 2
         values = 0
         values(2, 3) = real(number, real64)
         call fb_producer_begin(sim, number, time=0.5_real64)
         call fb_put(sim, 'U', values, offset=[0, 0])
         call fb_producer_end(sim)
         call fb_flush(sim)
      end do
      call check(fb_event_next(hot, event, timeout=20.0_real64), 'an event')
      call check(event%turn == FB_TURN_ROSE .and. event%step == 2 .and. event%run == 1 .and. event%number == 1, 'which event')
      call check(event%time == 0.5_real64 .and. event%first == 2 .and. event%episode == 1 .and. event%missing == 0, 'its episode')
      call check(size(event%values) == 1 .and. event%values(1)%label == 'm' .and. event%values(1)%number == 2, 'its value')
      call check(event%values(1)%has_place .and. all(event%values(1)%index == [2, 3]), 'its place, in Fortran''s order from 1')
      call fb_event_step(event, step)
      call check(step%number == 2, 'its step')
      call fb_event_step(event, again, stat=stat, errmsg=text)
      call fails(FB_CLOSED, 'was taken out of this event before')
      call fb_event_release(event)
      call check(step%number == 2, 'its step outlives the event')
      call fb_step_release(step)
      call fb_subscription_cursor(hot, cursor)
      call check(cursor == 1, 'the last event')
      call check(.not. fb_event_next(hot, event, timeout=0.05_real64, stat=stat, errmsg=text), 'no event')
      call fails(FB_TIMEOUT, 'no event of subscription')
      call fb_admin_open(admin)
      call check(index(fb_admin_subscriptions(admin), '"name":"hot"') > 0, 'it is listed')
      call fb_admin_change_subscription(admin, 'hot', FB_CHANGE_PAUSE)
      call fb_subscription_change(hot, FB_CHANGE_RESUME)
      call fb_subscription_change(hot, FB_CHANGE_REMOVE)
      call check(.not. fb_event_next(hot, event, timeout=20.0_real64, stat=i) .and. i == FB_ENDED, 'it has ended')
      call fb_subscription_close(hot)
      call fb_admin_close(admin)
      call values_of_the_newest
      call values_in_the_space
      call fb_producer_close(sim)
   end subroutine

   subroutine values_of_the_newest
      type(fb_stream) :: looked
      type(fb_step) :: step
      type(fb_value) :: value
      call fb_stream_open(looked, name)
      call fb_stream_latest(looked, step)
      call fb_step_evaluate(step, 'argmax(U)', value)
      call check(value%kind == FB_VALUE_PLACE .and. all(value%index == [2, 3]), 'where the largest is')
      call fb_step_evaluate(step, 'count(U > 0)', value)
      call check(value%is_integer .and. value%integer == 1 .and. value%number == 1, 'a count')
      call fb_step_evaluate(step, 'any(U > 5)', value)
      call check(value%kind == FB_VALUE_CONDITION .and. value%number == 0, 'a condition')
      call fb_step_evaluate(step, 'maxx(U)', value, stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'Did you mean ''max''?')
      call fb_step_release(step)
      call fb_stream_close(looked)
   end subroutine

   subroutine values_in_the_space
      type(fb_space) :: space
      type(fb_subscription) :: watch
      type(fb_event) :: event
      type(fb_value) :: value
      real(real64) :: values(2, 3)
      values = 0
      values(1, 3) = 4
      call fb_space_open(space)
      call fb_space_put(space, name, values, step=5_int64)
      call fb_space_evaluate(space, 'argmax(`'//trim(name)//'`)', 5_int64, value, timeout=20.0_real64)
      call check(all(value%index == [1, 3]), 'where the largest lies in the space')
      call fb_subscribe(watch, 'max(`'//trim(name)//'`) > 3', space=.true., timeout=20.0_real64)
      call fb_subscription_wait_active(watch)
      call fb_space_put(space, name, values, step=6_int64)
      call check(fb_event_next(watch, event, timeout=20.0_real64), 'an event of the space')
      call check(event%step == 6 .and. event%run == 0 .and. all(event%values(1)%index == [1, 3]), 'which one')
      call fb_event_release(event)
      call fb_subscription_change(watch, FB_CHANGE_REMOVE)
      call fb_subscription_close(watch)
      call fb_space_remove(space, name, 6_int64)
      call fb_space_remove(space, name, 5_int64)
      call fb_space_close(space)
   end subroutine

   subroutine looking
      type(fb_stream) :: looked
      type(fb_producer) :: sim
      type(fb_step) :: step
      real(real64), allocatable :: values(:)
      integer(int64) :: number
      allocate(values(3))
      call fb_stream_open(looked, name)
      call check(fb_stream_steps(looked) == '[]', 'nothing is held')
      call fb_stream_latest(looked, step, stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'no step of stream')
      call fb_producer_open(sim, name, keep=2)
      call fb_array(sim, 'U', FB_F64, shape=[3_int64])
      do number = 0, 2
         call fb_producer_begin(sim, number, time=0.5_real64)
         call fb_put(sim, 'U', [real(number, real64), 1.0_real64, 2.0_real64], offset=[0])
         call fb_producer_end(sim)
         call fb_flush(sim)
      end do
      call check(index(fb_stream_steps(looked), '"number":2') > 0, 'the last is held')
      call fb_stream_latest(looked, step)
      call check(step%number == 2 .and. step%run == 1 .and. step%time == 0.5_real64, 'the newest')
      call fb_get(step, 'U', values)
      call check(values(1) == 2 .and. values(3) == 2, 'what was put')
      call fb_step_release(step)
      call fb_stream_at(looked, 1_int64, step, run=1_int64)
      call check(step%number == 1, 'one by its number')
      call fb_step_release(step)
      call fb_stream_at(looked, 0_int64, step, stat=stat, errmsg=text)
      call fails(FB_DROPPED, 'the next that is held is 1')
      call fb_stream_at(looked, -1_int64, step, stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'runs count from 1')
      call fb_stream_close(looked)
      call fb_producer_close(sim)
   end subroutine

   subroutine attributes
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      logical :: yes
      integer(int64) :: i8
      real(real64) :: r8
      character(:), allocatable :: words
      integer(int64), allocatable :: integers(:)
      real(real64), allocatable :: reals(:)
      complex(real64) :: c8
      complex(real64), allocatable :: complexes(:)
      integer(int32) :: none(0)
      call open_both(sim, viewer)
      call fb_array(sim, 'U', FB_F64, ndim=0)
      call fb_attr(sim, 'yes', .true.)
      call fb_attr(sim, 'i4', -7)
      call fb_attr(sim, 'i8', 5000000000_int64)
      call fb_attr(sim, 'r4', 0.5)
      call fb_attr(sim, 'r8', 0.25_real64)
      call fb_attr(sim, 'words', 'what there is to say  ', field='U')
      call fb_attr(sim, 'integers', [1, 2, 3], field='U')
      call fb_attr(sim, 'large', [1_int64, 5000000000_int64], field='U')
      call fb_attr(sim, 'reals', [0.5_real64, 1.5_real64], field='U')
      call fb_attr(sim, 'none', none, field='U')
      call fb_attr(sim, 'complex', (0.5_real64, -2.0_real64))
      call fb_attr(sim, 'complexes', [(1.0_real64, 2.0_real64), (3.0_real64, 4.0_real64)], field='U')
      call fb_attr(sim, 'yes', .false., stat=stat, errmsg=text)
      call fails(FB_CONFLICT, 'yes')
      call fb_attr(sim, 'yes', 1, field='V', stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'V')
      call fb_producer_begin(sim, 1)
      call fb_put(sim, 'U', 1.0_real64)
      call fb_attr(sim, 'i4', 8, of_step=.true.)
      call fb_attr(sim, 'i4', 9, of_step=.true., stat=stat, errmsg=text)
      call fails(FB_CONFLICT, 'of a step')
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(step%time /= step%time, 'it has no time')
      call fb_attr_get(step, 'complex', c8)
      call check(c8 == (0.5_real64, -2.0_real64), 'a complex number')
      call fb_attr_get(step, 'complexes', complexes, field='U')
      call check(size(complexes) == 2 .and. complexes(2) == (3.0_real64, 4.0_real64), 'complex numbers')
      call fb_attr_get(step, 'yes', yes)
      call check(yes, 'a logical')
      call fb_attr_get(step, 'i4', i8)
      call check(i8 == 8, 'an integer, of the step')
      call fb_attr_get(step, 'i8', i8)
      call check(i8 == 5000000000_int64, 'a large integer')
      call fb_attr_get(step, 'r4', r8)
      call check(r8 == 0.5, 'a real')
      call fb_attr_get(step, 'r8', r8)
      call check(r8 == 0.25, 'a double')
      call fb_attr_get(step, 'words', words, field='U')
      call check(words == 'what there is to say' .and. len(words) == 20, 'a text, without the blanks at its end')
      call fb_attr_get(step, 'integers', integers, field='U')
      call check(size(integers) == 3 .and. all(integers == [1, 2, 3]), 'integers')
      call fb_attr_get(step, 'large', integers, field='U')
      call check(all(integers == [1_int64, 5000000000_int64]), 'large integers')
      call fb_attr_get(step, 'reals', reals, field='U')
      call check(size(reals) == 2 .and. all(reals == [0.5, 1.5]), 'reals')
      call fb_attr_get(step, 'none', integers, field='U')
      call check(size(integers) == 0, 'an empty list')
      call fb_attr_get(step, 'i4', r8, stat=stat, errmsg=text)
      call fails(FB_TYPE_MISMATCH, 'i4')
      call fb_attr_get(step, 'integers', i8, field='U', stat=stat, errmsg=text)
      call fails(FB_TYPE_MISMATCH, 'integers')
      call fb_attr_get(step, 'integers', i8, stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'the stream has no attribute')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   subroutine particles
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_field_info) :: info
      type(fb_view) :: view
      real(real64) :: x(3, 40)
      real(real64), pointer :: shown(:, :)
      real(real32) :: charge(40)
      integer(int8), target :: said(5) = [1_int8, 2_int8, 3_int8, 4_int8, 5_int8]
      integer(int8), pointer :: told(:)
      integer :: i
      x = reshape([(real(i, real64), i=1, 120)], [3, 40])
      charge = 2
      call fb_consumer_open(viewer, trim(name), needs=[fb_need('ions', stats=FB_STATS_ALONG), fb_need('log')], &
                            timeout=20.0_real64)
      call fb_producer_open(sim, name, timeout=20.0_real64)
      call fb_particles(sim, 'ions', ['x     ', 'charge'], [FB_F64], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'dtypes has 1 entries for 2 names')
      call fb_particles(sim, 'ions', ['x     ', 'charge'], [FB_F64, FB_F32], units=['m'], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'units has 1 entries for 2 names')
      call fb_particles(sim, 'ions', ['x     ', 'charge'], [FB_F64, FB_F32], ndims=[2, 1], units=['mm', 'e '])
      call fb_buffer(sim, 'log')
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'ions/x', x)
      call fb_put(sim, 'ions/charge', charge(1:39), stat=stat, errmsg=text)
      call fails(FB_CONFLICT, 'has 39 particles')
      call fb_put(sim, 'ions/charge', charge)
      call fb_put_address(sim, 'log', FB_U8, c_loc(said), [5_int64])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_step_block(step, 'ions/x', 1_int64, view)
      call check(all(view%stored == [3, 40]), 'the last dimension counts')
      call fb_step_field(step, 'ions/charge', info)
      call check(info%units == 'e' .and. .not. info%placed, 'its units')
      call c_f_pointer(view%data, shown, view%stored)
      call check(all(shown == x), 'its vectors')
      call check(view%has_stats .and. view%min == 1 .and. view%max == 120, 'their statistics')
      call fb_step_block(step, 'log', 1_int64, view)
      call c_f_pointer(view%data, told, view%stored)
      call check(all(told == said), 'the bytes')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
   end subroutine

   ! Parts that are put turn by turn, and read across.
   subroutine spaces
      type(fb_space) :: space
      real(real64) :: t(nx, ny), part(3, 2), back(nx, ny), scalar
      integer(int32) :: i4(2, 1, 3), j4(2, 1, 3)
      complex(real64) :: c8(5), d8(5)
      integer :: i
      t = reshape([(real(i, real64), i=1, nx*ny)], [nx, ny])
      i4 = reshape([(i, i=1, 6)], [2, 1, 3])
      c8 = [(cmplx(i, -i, real64), i=1, 5)]
      call fb_space_open(space, replicas=0, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'replicas is 0')
      call fb_space_open(space, timeout=20.0_real64, replicas=1)
      call fb_space_put(space, trim(name), t(:, 1:2), step=7_int64, shape=[nx, ny])
      call fb_space_put(space, trim(name), t(1:4, 3:), step=7_int64, offset=[0, 2], shape=[nx, ny])
      call fb_space_get(space, trim(name), back, step=7_int64, timeout=0.05_real64, stat=stat, errmsg=text)
      call fails(FB_NOT_COVERED, trim(name))
      call fb_space_put(space, trim(name), t(5:, 3:), step=7_int64, offset=[4, 2])
      call fb_space_get(space, trim(name), back, step=7_int64)
      call check(all(back == t), 'all of it')
      call fb_space_get(space, trim(name), part, step=7_int64, offset=[1, 1], every=[2, 3])
      call check(all(part == t(2:6:2, 2:5:3)), 'a part of it')
      call fb_space_put(space, 'i4 '//trim(name), i4, 1_int64)
      call fb_space_get(space, 'i4 '//trim(name), j4, 1_int64)
      call fb_space_put(space, 'c8 '//trim(name), c8, 1_int64)
      call fb_space_get(space, 'c8 '//trim(name), d8, 1_int64)
      call check(all(i4 == j4) .and. all(c8 == d8), 'other types')
      call fb_space_put(space, 'one '//trim(name), 42.0_real64, 1_int64)
      call fb_space_get(space, 'one '//trim(name), scalar, 1_int64)
      call check(scalar == 42, 'one number')
      call fb_space_get(space, 'i4 '//trim(name), back, 1_int64, timeout=1.0_real64, stat=stat, errmsg=text)
      call check(stat == FB_TYPE_MISMATCH .or. stat == FB_OUT_OF_BOUNDS, 'another type and shape')
      call fb_space_put(space, 'bad', t, 1_int64, offset=[-1, 0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 0')
      call fb_space_put(space, 'bad', t, 1_int64, shape=[nx], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'shape has 1')
      call fb_space_put(space, 'one '//trim(name), 43.0_real64, 1_int64, stat=stat, errmsg=text)
      call fails(FB_CONFLICT, 'overlaps')
      call fb_space_put(space, 'one '//trim(name), i4, 1_int64, replace=.true.)
      call fb_space_get(space, 'one '//trim(name), j4, 1_int64)
      call check(all(i4 == j4), 'another array in its place')
      call check(index(fb_space_list(space), 'one '//trim(name)) > 0, 'what there is')
      call fb_space_remove(space, trim(name), 7_int64)
      call fb_space_get(space, trim(name), back, step=7_int64, timeout=0.05_real64, stat=stat, errmsg=text)
      call check(stat /= FB_OK, 'it is gone')
      call check(index(status_of(), '"servers"') > 0, 'the status')
      call check(status_of('/nonexistent/group.json', stat, text) == '', 'no status')
      call check(index(status_of(fb_group_text()), '"servers"') > 0, 'the text of the file is as good as the file')
      call check(fb_group_text('/nonexistent/group.json', stat, text) == '', 'no text')
      call fails(FB_CONNECTION_FILE, '/nonexistent/group.json')
      call fb_space_close(space)
      call fb_space_close(space)   ! once more does no harm
   end subroutine

   ! Extents and places beyond 2^31, of which only what is touched costs memory.
   subroutine far
      integer(int64), parameter :: wide = 5000000000_int64
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      type(fb_space) :: space
      type(fb_view) :: view
      integer(int32), target :: i4(2, 2), j4(2, 2), one(2, 1)
      integer(int8), target :: there(2, 2)
      integer(int32), pointer :: given(:, :)
      type(c_ptr) :: address
      i4 = reshape([1, 2, 3, 4], [2, 2])
      one = reshape([5, 6], [2, 1])
      call open_both(sim, viewer)
      call fb_array(sim, 'u', FB_I32, [wide, 3_int64])
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'u', i4(:, 1:1), offset=[wide - 2, 1_int64])
      call fb_put_async(sim, 'u', i4(:, 2:2), offset=[wide - 2, 2_int64], number=1)
      call fb_put_address(sim, 'u', FB_I32, c_loc(one), [2_int64, 1_int64], offset=[wide - 6, 0_int64], number=2)
      call fb_put_async_address(sim, 'u', FB_I32, c_loc(one), [2_int64, 1_int64], offset=[wide - 8, 0_int64], number=3)
      call fb_alloc(sim, 'u', FB_I32, [2_int64, 1_int64], address, offset=[wide - 2, 0_int64], number=4)
      call c_f_pointer(address, given, [2, 1])
      given = one
      call fb_commit(sim, address)
      call fb_put(sim, 'u', i4, offset=[wide - 1, 1_int64], number=5, stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, '[3, 5000000000]')
      call fb_put(sim, 'u', i4, offset=[-1_int64, 1_int64], number=5, stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 0')
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call check(all(fb_step_shape(step, 'u') == [wide, 3_int64]), 'the shape')
      call fb_get(step, 'u', j4, offset=[wide - 2, 1_int64])
      call check(all(j4 == i4), 'at the far end')
      call fb_get_address(step, 'u', FB_I32, c_loc(j4), [2_int64, 1_int64], offset=[wide - 2, 0_int64])
      call check(all(j4(:, 1) == one(:, 1)), 'in place')
      call fb_get(step, 'u', j4, offset=[wide - 8, 0_int64], every=[2, 1], stat=stat, errmsg=text)
      call fails(FB_NOT_COVERED, 'C''s order')
      j4 = -1
      call fb_get(step, 'u', j4, offset=[wide - 8, 0_int64], every=[2, 1], holes=FB_HOLES_LEFT)
      call check(any(j4 == -1) .and. any(j4 /= -1), 'holes are left')
      call fb_covered(step, 'u', c_loc(there), [2_int64, 2_int64], every=[1, 1])
      call check(all(there == 0), 'nothing at the beginning')
      call fb_get(step, 'u', j4(:, 1:1), offset=[wide - 8, 0_int64], every=[3, 1])
      call check(all(j4(:, 1) == [5, 6]), 'every third of two blocks')
      call fb_step_block(step, 'u', 1_int64, view)
      call check(view%offset(1) > 4000000000_int64 .and. view%offset(2) <= 2, 'where it is')
      call fb_step_release(step)
      call fb_producer_close(sim)
      call fb_consumer_close(viewer)
      call fb_space_open(space, timeout=20.0_real64)
      call fb_space_put(space, trim(name), i4, 1_int64, offset=[wide - 2, 0_int64], shape=[wide, 7_int64])
      call fb_space_get(space, trim(name), j4, 1_int64, offset=[wide - 2, 0_int64])
      call check(all(j4 == i4), 'far in the space')
      call fb_space_close(space)
   end subroutine

   ! A run that a checkpoint remembers, and the one that goes on from there.
   subroutine runs
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      integer(int64) :: run, number
      integer :: life
      run = 0
      call fb_consumer_open(viewer, trim(name), timeout=20.0_real64, follow=.true.)
      do life = 1, 2
         if (life == 1) call fb_producer_open(sim, name, timeout=20.0_real64, queue_bytes=1000000_int64)
         if (life == 2) call fb_producer_open(sim, name, timeout=20.0_real64, continues_run=run, continues_step=2_int64)
         call check(fb_producer_run(sim) == life, 'the run')
         call check(fb_producer_transport(sim) == 'shm', 'the transport')
         run = fb_producer_run(sim)
         call fb_array(sim, 'U', FB_F64, [3])
         do number = 3*(life - 1), life + 2
            call fb_producer_begin(sim, number, 0.0_real64)
            call fb_put(sim, 'U', [1.0_real64, 2.0_real64, 3.0_real64], offset=[0])
            call fb_producer_end(sim)
            call check(fb_consumer_next(viewer, step), 'there is a step')
            call check(step%run == life .and. step%number == number, 'its run and number')
            call check(step%rewound .eqv. (life == 2 .and. number == 3), 'rewound once')
            call fb_step_release(step)
         end do
         call fb_producer_close(sim)
      end do
      call fb_consumer_close(viewer)
      call fb_producer_open(sim, name, continues_run=run, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'continues_run and continues_step go together')
      call fb_producer_open(sim, name, continues_step=1_int64, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'continues_run and continues_step go together')
      call check(fb_producer_run(sim, stat, text) == 0, 'no run')
      call fails(FB_INVALID, 'fb_producer_run: producer')
      call check(fb_producer_transport(sim, stat, text) == '', 'no transport')
      call fails(FB_INVALID, 'fb_producer_transport: producer')
   end subroutine

   ! A run that its rank gives up has crashed; the first step waits for a reader that has a name.
   subroutine ends
      type(fb_producer) :: sim, other
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      call fb_producer_open(sim, name, timeout=0.3_real64, wait_for_readers=1, job='mine', name='the sim')
      call fb_array(sim, 'U', FB_F64, [3])
      call fb_producer_begin(sim, 0, 0.0_real64, stat, text)
      call fails(FB_TIMEOUT, 'none with a name has come')
      call fb_producer_open(other, name, job=fb_new_job_name(), stat=stat, errmsg=text)
      call fails(FB_CONFLICT, "of job 'mine'")
      call fb_consumer_open(viewer, trim(name), name='viewer', start=FB_START_RUN, take=FB_TAKE_LATEST)
      call fb_producer_begin(sim, 0, 0.0_real64)
      call fb_put(sim, 'U', [1.0_real64, 2.0_real64, 3.0_real64], offset=[0])
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_step_release(step)
      call fb_producer_abandon(sim)
      call check(.not. fb_consumer_next(viewer, step, stat=stat, errmsg=text), 'there is none')
      call fails(FB_CRASHED, "rank 0 of 1 ('the sim', process ")
      call fb_consumer_close(viewer)
      call fb_producer_abandon(sim, stat, text)
      call check(stat == FB_OK, 'giving up twice is harmless')
   end subroutine

   subroutine errors
      type(fb_producer) :: sim
      type(fb_consumer) :: viewer
      type(fb_step) :: step
      real(real64) :: u(3, 4), five(1, 1, 1, 1, 1)
      u = 0
      five = 0
      call fb_producer_open(sim, 's', group='/nonexistent/group.json', stat=stat, errmsg=text)
      call fails(FB_CONNECTION_FILE, '/nonexistent/group.json')
      call fb_producer_open(sim, 's', rank=2, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'rank 2 of 1')
      call fb_producer_open(sim, 's', placement=2, stat=stat, errmsg=text)
      call fails(FB_INVALID, 'options->place is NULL')
      call fb_consumer_open(viewer, 's', transport='pigeon', stat=stat, errmsg=text)
      call fails(FB_INVALID, 'pigeon')
      call open_both(sim, viewer)
      call fb_array(sim, 'U', 99, [3, 4], stat=stat, errmsg=text)
      call fails(FB_INVALID, '99 is no dtype')
      call fb_array(sim, 'U', FB_F64, [3, 4], dims=['x', 'y', 'z'], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'dims has 3 entries for 2 dimensions')
      call fb_array(sim, 'U', FB_F64, [3, 4], spacing=[1.0_real64], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'spacing has 1')
      call fb_array(sim, 'U', FB_F64, [3, 4])
      call fb_put(sim, 'U', u, offset=[0, 0], stat=stat, errmsg=text)
      call fails(FB_STEP_ORDER, 'outside a step')
      call fb_producer_begin(sim, 1, 0.0_real64)
      call fb_put(sim, 'U', u, offset=[1, 0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'outside the global shape')
      call fb_put(sim, 'U', u, offset=[-1, 0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 0')
      call fb_put(sim, 'U', u, offset=[0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'offset has 1 entries')
      call fb_put(sim, 'U', u, offset=[0, 0], ghost_low=[2, 0], ghost_high=[2, 0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'wider than the array')
      call fb_put(sim, 'U', u(:, 1), offset=[0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, '1 dimensions')
      call fb_put(sim, 'U', five, stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'fb_put_address')
      call fb_put(sim, 'U', real(u, real32), offset=[0, 0], stat=stat, errmsg=text)
      call fails(FB_TYPE_MISMATCH, 'float64')
      call fb_put(sim, 'U', u, offset=[0, 0], stat=stat)
      call check(stat == FB_OK, 'and then it works')
      call fb_producer_end(sim)
      call check(fb_consumer_next(viewer, step), 'there is a step')
      call fb_get(step, 'U', u, offset=[0, 1], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'dimension 0')   ! y, the slowest
      call fails(FB_OUT_OF_BOUNDS, 'in C''s order: the slowest dimension first, from 0')
      call fb_get(step, 'U', u, offset=[-1, 0], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'counts from 0')
      call fb_get(step, 'U', u, every=[0, 1], stat=stat, errmsg=text)
      call fails(FB_OUT_OF_BOUNDS, 'at least 1')
      call fb_get(step, 'V', u, stat=stat, errmsg=text)
      call fails(FB_NOT_FOUND, 'it has U')
      call fb_step_release(step)
      call check(.not. fb_consumer_next(viewer, step, timeout=0.01_real64, stat=stat, errmsg=text), 'nothing comes')
      call fails(FB_TIMEOUT, 'errors')
      call fb_producer_end(sim, stat=stat, errmsg=text)
      call fails(FB_STEP_ORDER, 'outside a step')
      call fb_producer_close(sim)
      call fb_producer_close(sim)   ! once more does no harm
      call fb_consumer_close(viewer)
   end subroutine
end program
