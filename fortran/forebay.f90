! Forebay for Fortran: stage a simulation's fields in memory, step by step.
!
! SPDX-License-Identifier: Apache-2.0
!
! Shipped as source, since module files differ from compiler to compiler, and in one file, so that there is
! one to add to your build: compile it with your own code and link with -lforebay.  It needs Fortran 2018 (assumed rank): gfortran 10 or newer.  There is no MPI in it.
!
!     use forebay
!     type(fb_producer) :: sim
!     call fb_producer_open(sim, 'grayscott', rank=rank, ranks=ranks)     ! rank counts from 0
!     call fb_array(sim, 'U', FB_F64, [nx, ny, nz], dims=['x', 'y', 'z'])
!     do ...
!        call fb_step_begin(sim, number, time)
!        call fb_put(sim, 'U', u, start=[ix, iy, iz])
!        call fb_step_end(sim)
!     end do
!     call fb_producer_close(sim)
!
! and in a reader:
!
!     type(fb_consumer) :: viewer
!     type(fb_step) :: step
!     call fb_consumer_open(viewer, 'grayscott')
!     do while (fb_consumer_next(viewer, step))
!        call fb_get(step, 'U', plane, start=[1, 1, 32])
!        call fb_step_release(step)
!     end do
!     call fb_consumer_close(viewer)
!
! The order of dimensions.  Bytes are never transposed.  Everything here is in Fortran's order, the first
! dimension varying fastest, and is turned round on its way: U(x, y, z) of shape [nx, ny, nz] with dims
! ['x', 'y', 'z'] is U[z, y, x] of shape (nz, ny, nx) with dims ("z", "y", "x") in C and Python.
!
! Where things are.  `start` is the global index, counted from 1, of the block's first element in each
! dimension, ghosts not counted: the local array u(1:n) that is part (i:i+n-1) of the whole has start=[i].
! It is one more than `offset` in the other languages.  The array that is passed includes its ghosts; to put
! only the interior of a larger array, pass it as a section, u(2:nx+1, 2:ny+1): it is read where it lies.
!
! Errors.  Every call takes `stat` (FB_OK or the kind of error) and `errmsg` (the text).  Without `stat` an
! error stops the program with its text.  What is said of threads and fork in forebay.h holds here too.
module forebay
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
   implicit none
   private

   ! The numbers of forebay.h.
   integer, parameter, public :: FB_OK = 0, FB_INVALID = 1, FB_NOT_FOUND = 2, FB_TIMEOUT = 3, FB_LOST = 4, &
      FB_NOT_COVERED = 5, FB_CONFLICT = 6, FB_TYPE_MISMATCH = 7, FB_OUT_OF_BOUNDS = 8, FB_OVER_BUDGET = 9, &
      FB_FULL = 10, FB_CLOSED = 11, FB_WRONG_SECRET = 12, FB_WRONG_VERSION = 13, FB_UNREACHABLE = 14, &
      FB_PROTOCOL = 15, FB_CONNECTION_FILE = 16, FB_UNSUPPORTED = 17, FB_STEP_ORDER = 18, FB_FORKED = 19, &
      FB_ENDED = 20, FB_TORN = 21, FB_DROPPED = 22, FB_PIPELINE_FAILED = 23, FB_INTERNAL = 24, FB_IO = 25
   integer, parameter, public :: FB_BOOL = 1, FB_I8 = 2, FB_U8 = 3, FB_I16 = 4, FB_U16 = 5, FB_I32 = 6, FB_U32 = 7, &
      FB_I64 = 8, FB_U64 = 9, FB_F16 = 10, FB_BF16 = 11, FB_F32 = 12, FB_F64 = 13, FB_C64 = 14, FB_C128 = 15, &
      FB_TEXT = 16
   integer, parameter, public :: FB_ASSOCIATION_CELL = 0, FB_ASSOCIATION_VERTEX = 1
   integer, parameter, public :: FB_POLICY_DROP_OLDEST = 0, FB_POLICY_BLOCK = 1, FB_POLICY_LATEST = 2
   integer, parameter, public :: FB_ON_LOSS_SKIP = 0, FB_ON_LOSS_FAIL = 1
   integer, parameter, public :: FB_START_NEXT = 0, FB_START_OLDEST = 1

   ! One rank of a simulation; a reader of a stream; a step as a reader holds it.
   type, public :: fb_producer
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   type, public :: fb_consumer
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   type, public :: fb_step
      integer(int64) :: run = 0, number = 0
      real(real64) :: time = 0
      integer(int64) :: missed = 0   ! steps that were dropped before this one
      logical :: rewound = .false.   ! a new run went back: forget steps from `number` on
      logical :: torn = .false.      ! a rank died in it: parts may be missing
      type(c_ptr), private :: handle = c_null_ptr
   end type

   public :: fb_producer_open, fb_array, fb_step_begin, fb_demanded, fb_put, fb_put_address, fb_alloc, fb_commit
   public :: fb_abort, fb_step_end, fb_flush, fb_producer_lost, fb_producer_close
   public :: fb_consumer_open, fb_consumer_next, fb_step_shape, fb_get, fb_get_address, fb_step_release, fb_consumer_close
   public :: fb_version, fb_result_name

   ! call fb_put(producer, field, array, [start], [ghost_low], [ghost_high], [number], [level], [stat], [errmsg])
   ! for arrays of 0 to 4 dimensions of these types; fb_put_address takes all others.
   interface fb_put
      module procedure put_int32, put_int64, put_real32, put_real64, put_complex32, put_complex64
   end interface
   ! call fb_get(step, field, array, [start], [every], [stat], [errmsg]): as much as the array holds.
   interface fb_get
      module procedure get_int32, get_int64, get_real32, get_real64, get_complex32, get_complex64
   end interface
   ! Where an array lies in memory, in C's order.
   interface locate
      module procedure locate_int32, locate_int64, locate_real32, locate_real64, locate_complex32, locate_complex64
   end interface
   ! Integers of either kind.
   interface fb_step_begin
      module procedure step_begin_int32, step_begin_int64
   end interface

   integer, parameter :: max_ndim = 8, name_room = 256

   type :: placed_array
      integer :: dtype = 0, ndim = 0
      type(c_ptr) :: data = c_null_ptr
      integer(c_int64_t) :: shape(max_ndim) = 0, strides(max_ndim) = 0
   end type

   ! The structs of forebay.h, member by member.
   type, bind(C) :: c_producer_options
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: group = c_null_ptr, stream = c_null_ptr
      integer(c_int32_t) :: rank = 0, ranks = 1, policy = 0, keep = 0
      real(c_double) :: timeout = 30
      type(c_ptr) :: transport = c_null_ptr
      integer(c_int32_t) :: has_continues = 0, on_loss = 0
      integer(c_int64_t) :: continues_run = 0, continues_step = 0, queue_bytes = 0
   end type
   type, bind(C) :: c_field
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: name = c_null_ptr
      integer(c_int32_t) :: dtype = 0, association = 0, ndim = 0, every = 1
      type(c_ptr) :: shape = c_null_ptr, dims = c_null_ptr, spacing = c_null_ptr, origin = c_null_ptr, units = c_null_ptr
      integer(c_int32_t) :: stats = 0, reserved = 0
   end type
   type, bind(C) :: c_block
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: field = c_null_ptr
      integer(c_int64_t) :: number = 0
      type(c_ptr) :: data = c_null_ptr
      integer(c_int32_t) :: memory = 0, dtype = 0, ndim = 0, level = 0
      type(c_ptr) :: offset = c_null_ptr, shape = c_null_ptr, ghost_low = c_null_ptr, ghost_high = c_null_ptr
      type(c_ptr) :: strides = c_null_ptr, outcome = c_null_ptr
   end type
   type, bind(C) :: c_need
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: field = c_null_ptr
      integer(c_int32_t) :: dtype = 0, every = 1
   end type
   type, bind(C) :: c_consumer_options
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: group = c_null_ptr, stream = c_null_ptr
      integer(c_int32_t) :: needs_count = 0, needs_stride = 0
      type(c_ptr) :: needs = c_null_ptr
      real(c_double) :: timeout = 30
      type(c_ptr) :: transport = c_null_ptr
      integer(c_int32_t) :: every = 1, window = 4, start = 0, follow = 0
   end type
   type, bind(C) :: c_step_info
      integer(c_int64_t) :: size = 0, run = 0, number = 0
      real(c_double) :: time = 0
      integer(c_int64_t) :: missed = 0
      integer(c_int32_t) :: rewound = 0, torn = 0
   end type
   type, bind(C) :: c_selection
      integer(c_int64_t) :: size = 0
      type(c_ptr) :: field = c_null_ptr
      integer(c_int32_t) :: dtype = 0, ndim = 0
      type(c_ptr) :: offset = c_null_ptr, shape = c_null_ptr, step = c_null_ptr, data = c_null_ptr, strides = c_null_ptr
   end type

   interface
      function c_producer_open(options, producer) bind(C, name='fb_producer_open') result(r)
         import; type(c_producer_options), intent(in) :: options; type(c_ptr), intent(out) :: producer; integer(c_int) :: r
      end function
      function c_producer_lost(producer, skipped) bind(C, name='fb_producer_lost') result(r)
         import; type(c_ptr), value :: producer; integer(c_int64_t), intent(out) :: skipped; integer(c_int) :: r
      end function
      function c_array(producer, field) bind(C, name='fb_array') result(r)
         import; type(c_ptr), value :: producer; type(c_field), intent(in) :: field; integer(c_int) :: r
      end function
      function c_step_begin(producer, number, time) bind(C, name='fb_step_begin') result(r)
         import; type(c_ptr), value :: producer; integer(c_int64_t), value :: number
         real(c_double), value :: time; integer(c_int) :: r
      end function
      function c_demanded(producer, field, demanded) bind(C, name='fb_demanded') result(r)
         import; type(c_ptr), value :: producer; character(kind=c_char), intent(in) :: field(*)
         integer(c_int), intent(out) :: demanded; integer(c_int) :: r
      end function
      function c_put(producer, block) bind(C, name='fb_put') result(r)
         import; type(c_ptr), value :: producer; type(c_block), intent(in) :: block; integer(c_int) :: r
      end function
      function c_alloc(producer, block, data) bind(C, name='fb_alloc') result(r)
         import; type(c_ptr), value :: producer; type(c_block), intent(in) :: block
         type(c_ptr), intent(out) :: data; integer(c_int) :: r
      end function
      function c_commit(producer, data) bind(C, name='fb_commit') result(r)
         import; type(c_ptr), value :: producer, data; integer(c_int) :: r
      end function
      function c_abort(producer, data) bind(C, name='fb_abort') result(r)
         import; type(c_ptr), value :: producer, data; integer(c_int) :: r
      end function
      function c_step_end(producer) bind(C, name='fb_step_end') result(r)
         import; type(c_ptr), value :: producer; integer(c_int) :: r
      end function
      function c_flush(producer) bind(C, name='fb_flush') result(r)
         import; type(c_ptr), value :: producer; integer(c_int) :: r
      end function
      function c_producer_close(producer) bind(C, name='fb_producer_close') result(r)
         import; type(c_ptr), value :: producer; integer(c_int) :: r
      end function
      function c_consumer_open(options, consumer) bind(C, name='fb_consumer_open') result(r)
         import; type(c_consumer_options), intent(in) :: options; type(c_ptr), intent(out) :: consumer; integer(c_int) :: r
      end function
      function c_consumer_next(consumer, timeout, step) bind(C, name='fb_consumer_next') result(r)
         import; type(c_ptr), value :: consumer; real(c_double), value :: timeout
         type(c_ptr), intent(out) :: step; integer(c_int) :: r
      end function
      function c_step_info_get(step, info) bind(C, name='fb_step_info_get') result(r)
         import; type(c_ptr), value :: step; type(c_step_info), intent(inout) :: info; integer(c_int) :: r
      end function
      function c_step_field(step, field, dtype, ndim, shape) bind(C, name='fb_step_field') result(r)
         import; type(c_ptr), value :: step; character(kind=c_char), intent(in) :: field(*)
         integer(c_int32_t), intent(out) :: dtype; integer(c_int32_t), intent(inout) :: ndim
         integer(c_int64_t), intent(inout) :: shape(*); integer(c_int) :: r
      end function
      function c_get(step, selection) bind(C, name='fb_get') result(r)
         import; type(c_ptr), value :: step; type(c_selection), intent(in) :: selection; integer(c_int) :: r
      end function
      function c_step_release(step) bind(C, name='fb_step_release') result(r)
         import; type(c_ptr), value :: step; integer(c_int) :: r
      end function
      function c_consumer_close(consumer) bind(C, name='fb_consumer_close') result(r)
         import; type(c_ptr), value :: consumer; integer(c_int) :: r
      end function
      function c_error() bind(C, name='fb_error') result(text)
         import; type(c_ptr) :: text
      end function
      function c_result_name(result) bind(C, name='fb_result_name') result(text)
         import; integer(c_int), value :: result; type(c_ptr) :: text
      end function
      function c_version() bind(C, name='fb_version') result(text)
         import; type(c_ptr) :: text
      end function
      function c_strlen(text) bind(C, name='strlen') result(n)
         import; type(c_ptr), value :: text; integer(c_size_t) :: n
      end function
   end interface

contains

   ! ---- producer ------------------------------------------------------------------------------

   ! Joins the stream as one rank; ranks count from 0.
   subroutine fb_producer_open(producer, stream, group, rank, ranks, policy, keep, timeout, transport, on_loss, &
                               continues_run, continues_step, stat, errmsg)
      type(fb_producer), intent(out) :: producer
      character(*), intent(in) :: stream
      character(*), intent(in), optional :: group, transport
      integer, intent(in), optional :: rank, ranks, policy, keep, on_loss
      real(real64), intent(in), optional :: timeout
      integer(int64), intent(in), optional :: continues_run, continues_step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: stream_c, group_c, transport_c
      type(c_producer_options) :: options

      options%size = c_sizeof(options)
      stream_c = c_text(stream); options%stream = c_loc(stream_c)
      if (present(group)) then
         group_c = c_text(group); options%group = c_loc(group_c)
      end if
      if (present(transport)) then
         transport_c = c_text(transport); options%transport = c_loc(transport_c)
      end if
      if (present(rank)) options%rank = rank
      if (present(ranks)) options%ranks = ranks
      if (present(policy)) options%policy = policy
      if (present(keep)) options%keep = keep
      if (present(timeout)) options%timeout = timeout
      if (present(on_loss)) options%on_loss = on_loss
      if (present(continues_run) .and. present(continues_step)) then
         options%has_continues = 1
         options%continues_run = continues_run
         options%continues_step = continues_step
      end if
      call told(c_producer_open(options, producer%handle), stat, errmsg)
   end subroutine

   ! Adds a field to the output contract, or changes its global shape from the next step on.  Without `shape`
   ! the field's blocks have no place in a global array, and `ndim` says how many dimensions they have.
   subroutine fb_array(producer, name, dtype, shape, ndim, dims, spacing, origin, units, association, every, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: name
      integer, intent(in) :: dtype
      integer, intent(in), optional :: shape(:), ndim, association, every
      character(*), intent(in), optional :: dims(:), units
      real(real64), intent(in), optional :: spacing(:), origin(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c, units_c
      character(name_room, c_char), allocatable, target :: dims_c(:)
      type(c_ptr), allocatable, target :: dims_at(:)
      integer(c_int64_t), allocatable, target :: shape_c(:)
      real(c_double), allocatable, target :: spacing_c(:), origin_c(:)
      type(c_field) :: field
      integer :: d, n

      n = 0
      if (present(ndim)) n = ndim
      if (present(shape)) n = size(shape)
      if (.not. fits('dims', dims_given=present(dims), length=length_of(dims), n=n, stat=stat, errmsg=errmsg)) return
      field%size = c_sizeof(field)
      field%dtype = dtype
      field%ndim = n
      name_c = c_text(name); field%name = c_loc(name_c)
      if (present(shape)) then
         shape_c = int(shape(n:1:-1), c_int64_t)
         if (n > 0) field%shape = c_loc(shape_c)
      end if
      if (present(dims)) then
         if (.not. names_fit('dims', dims, stat, errmsg)) return
         allocate (dims_c(n), dims_at(n))
         do d = 1, n
            dims_c(d) = trim(dims(n + 1 - d))//c_null_char
            dims_at(d) = c_loc(dims_c(d))
         end do
         if (n > 0) field%dims = c_loc(dims_at)
      end if
      if (present(spacing)) then
         if (.not. fits('spacing', .true., size(spacing), n, stat, errmsg)) return
         spacing_c = spacing(n:1:-1)
         if (n > 0) field%spacing = c_loc(spacing_c)
      end if
      if (present(origin)) then
         if (.not. fits('origin', .true., size(origin), n, stat, errmsg)) return
         origin_c = origin(n:1:-1)
         if (n > 0) field%origin = c_loc(origin_c)
      end if
      if (present(units)) then
         units_c = c_text(units); field%units = c_loc(units_c)
      end if
      if (present(association)) field%association = association
      if (present(every)) field%every = every
      call told(c_array(producer%handle, field), stat, errmsg)
   end subroutine

   subroutine step_begin_int64(producer, number, time, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int64), intent(in) :: number
      real(real64), intent(in) :: time
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_step_begin(producer%handle, number, time), stat, errmsg)
   end subroutine

   subroutine step_begin_int32(producer, number, time, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int32), intent(in) :: number
      real(real64), intent(in) :: time
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_step_begin(producer%handle, int(number, c_int64_t), time), stat, errmsg)
   end subroutine

   ! Whether something wants the field at the current step.
   logical function fb_demanded(producer, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: demanded
      demanded = 0
      call told(c_demanded(producer%handle, c_text(field), demanded), stat, errmsg)
      fb_demanded = demanded /= 0
   end function

   ! What fb_put does, for an array of any type that lies anywhere: `shape` in elements, ghosts included,
   ! `strides` in bytes (without: dense).
   subroutine fb_put_address(producer, field, dtype, address, shape, strides, start, ghost_low, ghost_high, number, &
                             level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      integer :: n
      n = size(shape)
      if (.not. fits('shape', .true., min(n, max_ndim), n, stat, errmsg)) return
      array%dtype = dtype
      array%ndim = n
      array%data = address
      array%shape(1:n) = shape(n:1:-1)
      if (present(strides)) then
         if (.not. fits('strides', .true., size(strides), n, stat, errmsg)) return
         array%strides(1:n) = strides(n:1:-1)
         call put(producer, field, array, .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
      else
         call put(producer, field, array, .false., start, ghost_low, ghost_high, number, level, stat, errmsg)
      end if
   end subroutine

   subroutine put(producer, field, array, strided, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 4)
      type(c_block) :: block
      field_c = c_text(field)
      block%field = c_loc(field_c)
      block%dtype = array%dtype
      block%data = array%data
      if (strided) block%strides = c_loc(array%strides)
      if (.not. describe(block, box, array%shape(1:array%ndim), start, ghost_low, ghost_high, number, level, stat, errmsg)) &
         return
      call told(c_put(producer%handle, block), stat, errmsg)
   end subroutine

   ! Turns a block's box round.  `box` holds what the block then points at.
   logical function describe(block, box, stored, start, ghost_low, ghost_high, number, level, stat, errmsg) result(good)
      type(c_block), intent(inout) :: block
      integer(c_int64_t), intent(inout), target :: box(max_ndim, 4)
      integer(c_int64_t), intent(in) :: stored(:)   ! in C's order
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = size(stored)
      good = .false.
      box = 0
      if (present(start)) then
         if (.not. fits('start', .true., size(start), n, stat, errmsg)) return
         if (any(start < 1)) then
            call refused('start counts from 1', stat, errmsg)
            return
         end if
         box(1:n, 1) = int(start(n:1:-1), c_int64_t) - 1
         if (n > 0) block%offset = c_loc(box(1, 1))
      end if
      if (present(ghost_low)) then
         if (.not. fits('ghost_low', .true., size(ghost_low), n, stat, errmsg)) return
         box(1:n, 3) = ghost_low(n:1:-1)
      end if
      if (present(ghost_high)) then
         if (.not. fits('ghost_high', .true., size(ghost_high), n, stat, errmsg)) return
         box(1:n, 4) = ghost_high(n:1:-1)
      end if
      box(1:n, 2) = stored - box(1:n, 3) - box(1:n, 4)
      if (any(box(1:n, 2) < 0) .or. any(box(1:n, 3:4) < 0)) then
         call refused('the ghosts are negative, or wider than the array', stat, errmsg)
         return
      end if
      block%size = c_sizeof(block)
      block%ndim = n
      if (n > 0) then
         block%shape = c_loc(box(1, 2))
         block%ghost_low = c_loc(box(1, 3))
         block%ghost_high = c_loc(box(1, 4))
      end if
      if (present(number)) block%number = number
      if (present(level)) block%level = level
      good = .true.
   end function

   ! Gives memory of a staged block to compute into, dense, `shape` with ghosts: make it an array with
   ! c_f_pointer(address, array, shape).  Null if nothing wants the field; fb_commit then does nothing.
   subroutine fb_alloc(producer, field, dtype, shape, address, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype, shape(:)
      type(c_ptr), intent(out) :: address
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 4)
      type(c_block) :: block
      address = c_null_ptr
      if (.not. fits('shape', .true., min(size(shape), max_ndim), size(shape), stat, errmsg)) return
      field_c = c_text(field)
      block%field = c_loc(field_c)
      block%dtype = dtype
      if (.not. describe(block, box, int(shape(size(shape):1:-1), c_int64_t), start, ghost_low, ghost_high, number, &
                         level, stat, errmsg)) return
      call told(c_alloc(producer%handle, block, address), stat, errmsg)
   end subroutine

   ! Publishes what fb_alloc gave.
   subroutine fb_commit(producer, address, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      type(c_ptr), intent(in) :: address
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_commit(producer%handle, address), stat, errmsg)
   end subroutine

   ! Gives back what fb_alloc gave, unpublished.
   subroutine fb_abort(producer, address, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      type(c_ptr), intent(in) :: address
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_abort(producer%handle, address), stat, errmsg)
   end subroutine

   ! Ends the step of this rank.
   subroutine fb_step_end(producer, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_step_end(producer%handle), stat, errmsg)
   end subroutine

   ! Waits until the home server holds all that was put.
   subroutine fb_flush(producer, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_flush(producer%handle), stat, errmsg)
   end subroutine

   ! Whether staging was given up because the servers are gone; `skipped` steps were begun since.
   logical function fb_producer_lost(producer, skipped, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int64), intent(out), optional :: skipped
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t) :: steps
      integer :: stat
      steps = 0
      call told(c_producer_lost(producer%handle, steps), stat, errmsg)
      fb_producer_lost = stat /= FB_OK
      if (present(skipped)) skipped = steps
   end function

   ! Ends the stream for this rank.
   subroutine fb_producer_close(producer, stat, errmsg)
      type(fb_producer), intent(inout) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = producer%handle
      producer%handle = c_null_ptr
      call told(c_producer_close(handle), stat, errmsg)
   end subroutine

   ! ---- consumer ------------------------------------------------------------------------------

   ! Attaches to a stream, which may not exist yet.  `fields` are the ones that are needed, by default all,
   ! every `every` of the steps at which they are offered.
   subroutine fb_consumer_open(consumer, stream, group, fields, every, timeout, transport, window, start, follow, stat, errmsg)
      type(fb_consumer), intent(out) :: consumer
      character(*), intent(in) :: stream
      character(*), intent(in), optional :: group, fields(:), transport
      integer, intent(in), optional :: every, window, start
      real(real64), intent(in), optional :: timeout
      logical, intent(in), optional :: follow
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: stream_c, group_c, transport_c
      character(name_room, c_char), allocatable, target :: fields_c(:)
      type(c_need), allocatable, target :: needs(:)
      type(c_consumer_options) :: options
      integer :: i

      options%size = c_sizeof(options)
      stream_c = c_text(stream); options%stream = c_loc(stream_c)
      if (present(group)) then
         group_c = c_text(group); options%group = c_loc(group_c)
      end if
      if (present(transport)) then
         transport_c = c_text(transport); options%transport = c_loc(transport_c)
      end if
      if (present(every)) options%every = every
      if (present(fields)) then
         if (.not. names_fit('fields', fields, stat, errmsg)) return
         allocate (fields_c(size(fields)), needs(size(fields)))
         do i = 1, size(fields)
            fields_c(i) = trim(fields(i))//c_null_char
            needs(i)%size = c_sizeof(needs(i))
            needs(i)%field = c_loc(fields_c(i))
            if (present(every)) needs(i)%every = every
         end do
         options%needs_count = size(fields)
         if (size(fields) > 0) then
            options%needs_stride = int(c_sizeof(needs(1)), c_int32_t)
            options%needs = c_loc(needs)
         end if
      end if
      if (present(timeout)) options%timeout = timeout
      if (present(window)) options%window = window
      if (present(start)) options%start = start
      if (present(follow)) options%follow = merge(1, 0, follow)
      call told(c_consumer_open(options, consumer%handle), stat, errmsg)
   end subroutine

   ! Waits for the next step; false when the simulation has ended, and after an error.
   logical function fb_consumer_next(consumer, step, timeout, stat, errmsg) result(found)
      type(fb_consumer), intent(in) :: consumer
      type(fb_step), intent(out) :: step
      real(real64), intent(in), optional :: timeout   ! seconds
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_step_info) :: info
      real(c_double) :: patience
      integer(c_int) :: result
      patience = -1
      if (present(timeout)) patience = timeout
      result = c_consumer_next(consumer%handle, patience, step%handle)
      if (result == FB_OK) then
         info%size = c_sizeof(info)
         result = c_step_info_get(step%handle, info)
         step%run = info%run
         step%number = info%number
         step%time = info%time
         step%missed = info%missed
         step%rewound = info%rewound /= 0
         step%torn = info%torn /= 0
      end if
      found = result == FB_OK
      if (result == FB_ENDED) then
         if (present(stat)) stat = FB_ENDED
         return
      end if
      call told(result, stat, errmsg)
   end function

   ! A field's global shape at this step.
   function fb_step_shape(step, field, stat, errmsg) result(shape)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(int64), allocatable :: shape(:)
      integer(c_int64_t) :: shape_c(max_ndim)
      integer(c_int32_t) :: dtype, ndim
      integer(c_int) :: result
      ndim = max_ndim
      shape_c = 0
      result = c_step_field(step%handle, c_text(field), dtype, ndim, shape_c)
      if (result /= FB_OK) ndim = 0
      shape = shape_c(ndim:1:-1)
      call told(result, stat, errmsg)
   end function

   ! What fb_get does, for an array of any type that lies anywhere: `strides` in bytes (without: dense).
   subroutine fb_get_address(step, field, dtype, address, shape, strides, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      integer :: n
      n = size(shape)
      if (.not. fits('shape', .true., min(n, max_ndim), n, stat, errmsg)) return
      array%dtype = dtype
      array%ndim = n
      array%data = address
      array%shape(1:n) = shape(n:1:-1)
      if (present(strides)) then
         if (.not. fits('strides', .true., size(strides), n, stat, errmsg)) return
         array%strides(1:n) = strides(n:1:-1)
      end if
      call get(step, field, array, present(strides), start, every, stat, errmsg)
   end subroutine

   subroutine get(step, field, array, strided, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: offset(max_ndim), apart(max_ndim)
      type(c_selection) :: selection
      integer :: n
      n = array%ndim
      offset = 0
      apart = 1
      if (present(start)) then
         if (.not. fits('start', .true., size(start), n, stat, errmsg)) return
         if (any(start < 1)) then
            call refused('start counts from 1', stat, errmsg)
            return
         end if
         offset(1:n) = int(start(n:1:-1), c_int64_t) - 1
      end if
      if (present(every)) then
         if (.not. fits('every', .true., size(every), n, stat, errmsg)) return
         if (any(every < 1)) then
            call refused('every is at least 1', stat, errmsg)
            return
         end if
         apart(1:n) = every(n:1:-1)
      end if
      field_c = c_text(field)
      selection%size = c_sizeof(selection)
      selection%field = c_loc(field_c)
      selection%dtype = array%dtype
      selection%ndim = n
      selection%offset = c_loc(offset)
      selection%shape = c_loc(array%shape)
      selection%step = c_loc(apart)
      selection%data = array%data
      if (strided) selection%strides = c_loc(array%strides)
      call told(c_get(step%handle, selection), stat, errmsg)
   end subroutine

   ! Has finished with the step: its memory may be used again.
   subroutine fb_step_release(step, stat, errmsg)
      type(fb_step), intent(inout) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = step%handle
      step%handle = c_null_ptr
      call told(c_step_release(handle), stat, errmsg)
   end subroutine

   ! Detaches.
   subroutine fb_consumer_close(consumer, stat, errmsg)
      type(fb_consumer), intent(inout) :: consumer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = consumer%handle
      consumer%handle = c_null_ptr
      call told(c_consumer_close(handle), stat, errmsg)
   end subroutine

   ! ---- general -------------------------------------------------------------------------------

   function fb_version() result(text)
      character(:), allocatable :: text
      text = fortran_text(c_version())
   end function

   ! The name of a result code.
   function fb_result_name(result) result(text)
      integer, intent(in) :: result
      character(:), allocatable :: text
      text = fortran_text(c_result_name(int(result, c_int)))
   end function

   ! Hands a result to the caller; without `stat` an error ends the program.
   subroutine told(result, stat, errmsg)
      integer(c_int), intent(in) :: result
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (present(stat)) stat = result
      if (result == FB_OK) return
      if (present(errmsg)) errmsg = fortran_text(c_error())
      if (.not. present(stat)) call stop_with(fortran_text(c_error()), int(result))
   end subroutine

   ! Refuses an argument before C sees it.
   subroutine refused(text, stat, errmsg)
      character(*), intent(in) :: text
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (present(stat)) stat = FB_OUT_OF_BOUNDS
      if (present(errmsg)) errmsg = text
      if (.not. present(stat)) call stop_with(text, FB_OUT_OF_BOUNDS)
   end subroutine

   subroutine stop_with(text, result)
      character(*), intent(in) :: text
      integer, intent(in) :: result
      ! `error stop` with a text of variable length is Fortran 2018; this is the same in older compilers.
      write (error_unit, '(4a)') fb_result_name(result), ': ', text
      error stop 1
   end subroutine

   ! Whether a list of numbers has one for each dimension.
   logical function fits(what, dims_given, length, n, stat, errmsg)
      character(*), intent(in) :: what
      logical, intent(in) :: dims_given
      integer, intent(in) :: length, n
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(24) :: numbers(2)
      fits = .not. dims_given .or. length == n
      if (fits) return
      write (numbers, '(i0)') length, n
      call refused(what//' has '//trim(numbers(1))//' entries for '//trim(numbers(2))//' dimensions', stat, errmsg)
   end function

   logical function too_many(what, ndim, stat, errmsg)
      character(*), intent(in) :: what
      integer, intent(in) :: ndim
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      too_many = ndim > 4
      if (too_many) call refused(what//' takes up to 4 dimensions; '//what//'_address takes more', stat, errmsg)
   end function

   ! Names as C has them, each with room for its NUL.
   logical function names_fit(what, names, stat, errmsg)
      character(*), intent(in) :: what, names(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      names_fit = all(len_trim(names) < name_room)
      if (.not. names_fit) call refused(what//': a name has at most 255 bytes', stat, errmsg)
   end function

   integer function length_of(list)
      character(*), intent(in), optional :: list(:)
      length_of = 0
      if (present(list)) length_of = size(list)
   end function

   ! Text as C has it, without the blanks that Fortran fills up with.
   function c_text(text) result(c)
      character(*), intent(in) :: text
      character(:, c_char), allocatable :: c
      c = trim(text)//c_null_char
   end function

   function fortran_text(c) result(text)
      type(c_ptr), intent(in) :: c
      character(:), allocatable :: text
      character(kind=c_char), pointer :: letters(:)
      integer :: i
      call c_f_pointer(c, letters, [c_strlen(c)])
      allocate (character(size(letters)) :: text)
      do i = 1, size(letters)
         text(i:i) = letters(i)
      end do
   end function

   ! Bytes from one element to its neighbour.
   integer(c_int64_t) function apart(first, next)
      type(c_ptr), intent(in) :: first, next
      apart = transfer(next, 0_c_int64_t) - transfer(first, 0_c_int64_t)
   end function

   ! ---- one of each for every type, since Fortran has no templates ------------------------------
   !
   ! The strides of an array are the distances from its first element to its neighbours, so that sections
   ! and dummy arguments are read where they lie.

   function locate_int32(a) result(at)
      integer(int32), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_I32
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   function locate_int64(a) result(at)
      integer(int64), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_I64
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   function locate_real32(a) result(at)
      real(real32), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_F32
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   function locate_real64(a) result(at)
      real(real64), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_F64
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   function locate_complex32(a) result(at)
      complex(real32), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_C64
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   function locate_complex64(a) result(at)
      complex(real64), intent(in), target :: a(..)
      type(placed_array) :: at
      integer :: n(4)
      at%dtype = FB_C128
      at%ndim = rank(a)
      if (rank(a) <= 4) call measure(at, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(1)), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(1, 1)), c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
      rank (3)
         call span(at, [c_loc(a(1, 1, 1)), c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
      rank (4)
         call span(at, [c_loc(a(1, 1, 1, 1)), c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), &
                        c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
      end select
   end function

   ! The shape in C's order, and the index of a neighbour of the first element, if there is one.
   subroutine measure(at, n, extents)
      type(placed_array), intent(inout) :: at
      integer, intent(out) :: n(4)
      integer(int64), intent(in) :: extents(:)
      at%shape(1:at%ndim) = extents(at%ndim:1:-1)
      n = 1
      n(1:at%ndim) = int(min(extents, 2_int64))
   end subroutine

   ! The strides in C's order, from the addresses of the first element and its neighbours.
   subroutine span(at, addresses)
      type(placed_array), intent(inout) :: at
      type(c_ptr), intent(in) :: addresses(:)
      integer :: d
      at%data = addresses(1)
      do d = 1, at%ndim
         at%strides(at%ndim + 1 - d) = apart(addresses(1), addresses(d + 1))
      end do
   end subroutine

   subroutine put_int32(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer(int32), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine put_int64(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer(int64), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine put_real32(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      real(real32), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine put_real64(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      real(real64), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine put_complex32(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      complex(real32), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine put_complex64(producer, field, array, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      complex(real64), intent(in), target :: array(..)
      integer, intent(in), optional :: start(:), ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_put', rank(array), stat, errmsg)) return
      call put(producer, field, locate(array), .true., start, ghost_low, ghost_high, number, level, stat, errmsg)
   end subroutine

   subroutine get_int32(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer(int32), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

   subroutine get_int64(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer(int64), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

   subroutine get_real32(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      real(real32), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

   subroutine get_real64(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      real(real64), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

   subroutine get_complex32(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      complex(real32), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

   subroutine get_complex64(step, field, array, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      complex(real64), intent(inout), target :: array(..)
      integer, intent(in), optional :: start(:), every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., start, every, stat, errmsg)
   end subroutine

end module
