! Forebay for Fortran: stage a simulation's fields in memory, step by step.
!
! SPDX-License-Identifier: Apache-2.0
!
! Shipped as source, since module files differ from compiler to compiler.  There is one file to add to your
! build, this one: compile it with your own code and link with -lforebay.  It includes three that lie beside it:
! forebay_c.inc, the structs and functions of forebay.h, and forebay_types.inc and forebay_far.inc, what must stand
! there once for every type.  It needs Fortran 2018 (assumed rank): gfortran 10 or newer.  There is no MPI in it.
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
! Under MPI one rank reads the connection file for all: a thousand ranks do not open one file, and it need not be
! visible on every node. Each compiler has its own module `mpi`; it is not among what Forebay installs.
!
!     if (rank == 0) text = fb_group_text()
!     length = len(text); call MPI_Bcast(length, 1, MPI_INTEGER, 0, comm, error)
!     if (rank /= 0) allocate(character(length) :: text)
!     call MPI_Bcast(text, length, MPI_CHARACTER, 0, comm, error)
!     call fb_producer_open(sim, 'grayscott', group=text, rank=rank, ranks=ranks)
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
! Arrays that are kept until they are removed, whoever puts them:
!
!     type(fb_space) :: space
!     call fb_space_open(space)
!     call fb_space_put(space, 'T', t, step=7_int64, start=[i, 1])
!     call fb_space_get(space, 'T', part, step=7_int64, start=[1, 1])
!     call fb_space_close(space)
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
! What may be passed.  Arrays, sections of them and components of arrays, p(:)%x, are read and written where they
! lie.  Of an expression, 2*u, the compiler makes a copy for the call; fb_put_async too is done with it when it
! returns.  One defect of gfortran (12, at least) cannot be mended here: a pointer to a component, q => p%x, that
! another procedure associated than the one that passes it on arrives wrong in every call, Forebay's or not.  Pass
! p%x itself.
!
! Integers.  `start` and the shapes of fb_array, fb_alloc and fb_space_put may be of kind int32 or int64; all that can
! only be small is a default integer.
!
! Errors.  Every call takes `stat` (FB_OK or the kind of error) and `errmsg` (the text).  Without `stat` an
! error stops the program with its text.  A text that names shapes or places has them as C does, the slowest dimension
! first and counted from 0, and says so.  What is said of threads and fork in forebay.h holds here too.
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
   integer, parameter, public :: FB_PLACEMENT_NEAREST = 0, FB_PLACEMENT_BY_BLOCK = 1
   integer, parameter, public :: FB_DURABILITY_LOCAL = 0, FB_DURABILITY_REPLICATED = 1
   integer, parameter, public :: FB_START_NEXT = 0, FB_START_OLDEST = 1, FB_START_CURSOR = 2

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
      logical :: torn = .false.      ! a rank died in it or left it out: parts may be missing
      type(c_ptr), private :: handle = c_null_ptr
   end type

   ! Arrays by name, step and region.
   type, public :: fb_space
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! One block of a step, shown where it lies: call c_f_pointer(view%data, array, view%stored).
   type, public :: fb_view
      type(c_ptr) :: data = c_null_ptr                 ! read-only; null for an empty block
      integer :: dtype = 0, rank = 0, level = 0        ! FB_...; who put it; refinement level
      integer(int64) :: number = 0, bytes = 0
      logical :: placed = .false.                      ! whether `start` means anything
      integer(int64), allocatable :: start(:), shape(:), ghost_low(:), ghost_high(:)
      integer(int64), allocatable :: stored(:)         ! of the array in memory: with its ghosts
      logical :: has_stats = .false.                   ! whether the five below mean anything: see fb_array
      real(real64) :: min = 0, max = 0, sum = 0        ! of the interior's finite elements; without any +inf, -inf, 0
      integer(int64) :: count = 0, non_finite = 0      ! how many elements are finite, and how many not
   end type

   public :: fb_producer_open, fb_array, fb_particles, fb_buffer, fb_attr, fb_step_begin, fb_demanded
   public :: fb_put, fb_put_address, fb_put_async, fb_put_async_address, fb_wait, fb_alloc, fb_commit, fb_abort
   public :: fb_step_end, fb_flush, fb_producer_run, fb_producer_transport, fb_producer_lost, fb_producer_close
   public :: fb_consumer_open, fb_consumer_next, fb_step_shape, fb_attr_get, fb_get, fb_get_address
   public :: fb_step_block_count, fb_step_block, fb_step_release, fb_consumer_close
   public :: fb_space_open, fb_space_put, fb_space_get, fb_space_remove, fb_space_close
   public :: fb_status, fb_group_text, fb_version, fb_result_name

   ! call fb_put(producer, field, array, [start], [ghost_low], [ghost_high], [number], [level], [stat], [errmsg])
   ! for arrays of 0 to 4 dimensions of these types; fb_put_address takes all others.
   interface fb_put
      module procedure put_int32, put_int64, put_real32
      module procedure put_real64, put_complex32, put_complex64
      module procedure put_int32_far, put_int64_far, put_real32_far
      module procedure put_real64_far, put_complex32_far, put_complex64_far
   end interface
   ! The same without waiting for the server's answer: the array must stay as it is until fb_wait or fb_step_end,
   ! unless it is an expression.
   interface fb_put_async
      module procedure put_async_int32, put_async_int64, put_async_real32
      module procedure put_async_real64, put_async_complex32, put_async_complex64
      module procedure put_async_int32_far, put_async_int64_far, put_async_real32_far
      module procedure put_async_real64_far, put_async_complex32_far, put_async_complex64_far
   end interface
   ! call fb_attr(producer, key, value, [field], [stat], [errmsg]) sets an attribute of the stream, or of a field,
   ! for the rest of the run.  Lists have one dimension, and are not turned round.
   interface fb_attr
      module procedure attr_logical, attr_int32, attr_int64, attr_real32, attr_real64, attr_text, attr_int32_list, &
         attr_int64_list, attr_real64_list
   end interface
   ! call fb_attr_get(step, key, value, [field], [stat], [errmsg]) reads one; its type must be the value's.
   interface fb_attr_get
      module procedure attr_get_logical, attr_get_int64, attr_get_real64, attr_get_text, attr_get_int64_list, &
         attr_get_real64_list
   end interface
   ! call fb_space_put(space, name, array, step, [start], [shape], [stat], [errmsg]): keeps a part of an array of
   ! global `shape` (default: the part with what is before it).  For arrays of 0 to 4 dimensions.
   interface fb_space_put
      module procedure space_put_int32, space_put_int64, space_put_real32
      module procedure space_put_real64, space_put_complex32, space_put_complex64
      module procedure space_put_int32_far, space_put_int64_far, space_put_real32_far
      module procedure space_put_real64_far, space_put_complex32_far, space_put_complex64_far
   end interface
   ! call fb_space_get(space, name, array, step, [start], [every], [timeout], [stat], [errmsg]): as much as the
   ! array holds, waiting up to `timeout` seconds (default 30) until all of it was put.
   interface fb_space_get
      module procedure space_get_int32, space_get_int64, space_get_real32
      module procedure space_get_real64, space_get_complex32, space_get_complex64
      module procedure space_get_int32_far, space_get_int64_far, space_get_real32_far
      module procedure space_get_real64_far, space_get_complex32_far, space_get_complex64_far
   end interface
   ! call fb_get(step, field, array, [start], [every], [stat], [errmsg]): as much as the array holds.
   interface fb_get
      module procedure get_int32, get_int64, get_real32
      module procedure get_real64, get_complex32, get_complex64
      module procedure get_int32_far, get_int64_far, get_real32_far
      module procedure get_real64_far, get_complex32_far, get_complex64_far
   end interface
   ! Where an array lies in memory, in C's order.
   interface locate
      module procedure locate_int32, locate_int64, locate_real32, locate_real64, locate_complex32, locate_complex64
   end interface
   ! Integers of either kind: the step's number; the shape; `start`, if it is present.
   interface fb_step_begin
      module procedure step_begin_int32, step_begin_int64
   end interface
   interface fb_array
      module procedure array_int32, array_int64
   end interface
   interface fb_alloc
      module procedure alloc_int32, alloc_int64
   end interface
   interface fb_put_address
      module procedure put_address_int32, put_address_int64
   end interface
   interface fb_put_async_address
      module procedure put_async_address_int32, put_async_address_int64
   end interface
   interface fb_get_address
      module procedure get_address_int32, get_address_int64
   end interface

   integer, parameter :: max_ndim = 8, name_room = 256

   ! One integer for each dimension, of whichever kind they were given.
   type :: numbers
      logical :: there = .false.
      integer :: n = 0
      integer(int64) :: of(2*max_ndim) = 0
   end type

   type :: placed_array
      integer :: dtype = 0, ndim = 0
      type(c_ptr) :: data = c_null_ptr
      integer(c_int64_t) :: shape(max_ndim) = 0, strides(max_ndim) = 0
   end type

   include 'forebay_c.inc'

contains

   ! ---- producer ------------------------------------------------------------------------------

   ! Joins the stream as one rank; ranks count from 0.  After a restart from a checkpoint, continues_run and
   ! continues_step say which run goes on (see fb_producer_run), and the last step of it that is still true.
   subroutine fb_producer_open(producer, stream, group, rank, ranks, policy, keep, timeout, transport, on_loss, &
                               continues_run, continues_step, placement, queue_bytes, replicas, durability, &
                               stat, errmsg)
      type(fb_producer), intent(out) :: producer
      character(*), intent(in) :: stream
      character(*), intent(in), optional :: group, transport
      integer, intent(in), optional :: rank, ranks, policy, keep, on_loss, placement, replicas, durability
      real(real64), intent(in), optional :: timeout
      integer(int64), intent(in), optional :: continues_run, continues_step, queue_bytes
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
      if (present(placement)) options%placement = placement
      if (present(queue_bytes)) options%queue_bytes = queue_bytes
      if (present(replicas)) options%replicas = replicas
      if (present(durability)) options%durability = durability
      if (present(continues_run) .neqv. present(continues_step)) then
         call refused('continues_run and continues_step go together: give both, or neither', stat, errmsg, FB_INVALID)
         return
      end if
      if (present(continues_run)) then
         options%has_continues = 1
         options%continues_run = continues_run
         options%continues_step = continues_step
      end if
      call told(c_producer_open(options, producer%handle), stat, errmsg)
   end subroutine

   ! Adds a field to the output contract, or changes its global shape from the next step on.  Without `shape`
   ! the field's blocks have no place in a global array, and `ndim` says how many dimensions they have.  With `stats`
   ! each block carries statistics of its interior, for fb_step_block to show.
   subroutine array_int32(producer, name, dtype, shape, ndim, dims, spacing, origin, units, association, every, &
                          stats, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: name
      integer, intent(in) :: dtype
      integer(int32), intent(in), optional :: shape(:)
      integer, intent(in), optional :: ndim, association, every
      character(*), intent(in), optional :: dims(:), units
      real(real64), intent(in), optional :: spacing(:), origin(:)
      logical, intent(in), optional :: stats
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call declare(producer, name, dtype, given_int32(shape), ndim, dims, spacing, origin, units, association, every, &
                   stats, stat, errmsg)
   end subroutine

   subroutine array_int64(producer, name, dtype, shape, ndim, dims, spacing, origin, units, association, every, &
                          stats, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: name
      integer, intent(in) :: dtype
      integer(int64), intent(in) :: shape(:)
      integer, intent(in), optional :: ndim, association, every
      character(*), intent(in), optional :: dims(:), units
      real(real64), intent(in), optional :: spacing(:), origin(:)
      logical, intent(in), optional :: stats
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call declare(producer, name, dtype, given_int64(shape), ndim, dims, spacing, origin, units, association, every, &
                   stats, stat, errmsg)
   end subroutine

   subroutine declare(producer, name, dtype, shape, ndim, dims, spacing, origin, units, association, every, stats, &
                      stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: name
      integer, intent(in) :: dtype
      type(numbers), intent(in) :: shape
      integer, intent(in), optional :: ndim, association, every
      character(*), intent(in), optional :: dims(:), units
      real(real64), intent(in), optional :: spacing(:), origin(:)
      logical, intent(in), optional :: stats
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
      if (shape%there) n = shape%n
      if (.not. fits('shape', .true., min(n, max_ndim), n, stat, errmsg)) return
      if (.not. fits('dims', dims_given=present(dims), length=length_of(dims), n=n, stat=stat, errmsg=errmsg)) return
      field%size = c_sizeof(field)
      field%dtype = dtype
      field%ndim = n
      name_c = c_text(name); field%name = c_loc(name_c)
      if (shape%there) then
         shape_c = shape%of(n:1:-1)
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
      if (present(stats)) field%stats = merge(1, 0, stats)
      call told(c_array(producer%handle, field), stat, errmsg)
   end subroutine

   ! Adds a particle species: fields `species/name` that share one count.  `ndims` has 1 for each, or 2 for vectors:
   ! then the last of the two dimensions counts the particles, as in x(3, n).  Without it all are 1.
   subroutine fb_particles(producer, species, names, dtypes, ndims, every, stats, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: species, names(:)
      integer, intent(in) :: dtypes(:)
      integer, intent(in), optional :: ndims(:), every
      logical, intent(in), optional :: stats   ! of all of them
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(name_room, c_char), allocatable, target :: names_c(:)
      type(c_field) :: fields(size(names))
      integer :: i
      if (.not. names_fit('names', names, stat, errmsg)) return
      if (.not. one_each('dtypes', size(dtypes), size(names), stat, errmsg)) return
      if (present(ndims)) then
         if (.not. one_each('ndims', size(ndims), size(names), stat, errmsg)) return
      end if
      allocate (names_c(size(names)))
      do i = 1, size(names)
         names_c(i) = trim(names(i))//c_null_char
         fields(i)%size = c_sizeof(fields(i))
         fields(i)%name = c_loc(names_c(i))
         fields(i)%dtype = dtypes(i)
         fields(i)%ndim = 1
         if (present(ndims)) fields(i)%ndim = ndims(i)
         if (present(every)) fields(i)%every = every
         if (present(stats)) fields(i)%stats = merge(1, 0, stats)
      end do
      call told(c_particles(producer%handle, c_text(species), fields, size(names, kind=c_int32_t), &
                            int(storage_size(fields)/8, c_int32_t)), stat, errmsg)
   end subroutine

   ! Adds a buffer: bytes, of another length at each step and rank if need be.  It is put with fb_put_address as
   ! FB_U8 with one dimension and without `start`.
   subroutine fb_buffer(producer, name, every, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: name
      integer, intent(in), optional :: every
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t) :: period
      period = 1
      if (present(every)) period = every
      call told(c_buffer(producer%handle, c_text(name), period), stat, errmsg)
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
   subroutine put_address_int32(producer, field, dtype, address, shape, strides, start, ghost_low, ghost_high, number, &
                             level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .true., given_int32(start), ghost_low, ghost_high, number, &
               level, stat, errmsg)
   end subroutine

   subroutine put_address_int64(producer, field, dtype, address, shape, strides, start, ghost_low, ghost_high, number, &
                             level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .true., given_int64(start), ghost_low, ghost_high, number, &
               level, stat, errmsg)
   end subroutine

   ! The same without waiting for the server's answer: see fb_put_async.
   subroutine put_async_address_int32(producer, field, dtype, address, shape, strides, start, ghost_low, ghost_high, &
                                   number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .false., given_int32(start), ghost_low, ghost_high, number, &
               level, stat, errmsg)
   end subroutine

   subroutine put_async_address_int64(producer, field, dtype, address, shape, strides, start, ghost_low, ghost_high, &
                                   number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .false., given_int64(start), ghost_low, ghost_high, number, &
               level, stat, errmsg)
   end subroutine

   ! Waits until the server holds all that was put in this step with fb_put_async, or tells what failed.  `dropped`
   ! is how many of those found no room.
   subroutine fb_wait(producer, dropped, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int64), intent(out), optional :: dropped
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t) :: found_no_room
      integer(c_int) :: result
      found_no_room = 0
      result = c_wait(producer%handle, found_no_room)
      if (present(dropped)) dropped = found_no_room
      call told(result, stat, errmsg)
   end subroutine

   ! An array that lies at an address, turned round.
   logical function placed_at(array, dtype, address, shape, strides, stat, errmsg) result(good)
      type(placed_array), intent(out) :: array
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = size(shape)
      good = fits('shape', .true., min(n, max_ndim), n, stat, errmsg)
      if (good .and. present(strides)) good = fits('strides', .true., size(strides), n, stat, errmsg)
      if (.not. good) return
      array%dtype = dtype
      array%ndim = n
      array%data = address
      array%shape(1:n) = shape(n:1:-1)
      if (present(strides)) array%strides(1:n) = strides(n:1:-1)
   end function

   subroutine put(producer, field, array, strided, waits, start, ghost_low, ghost_high, number, level, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided, waits
      type(numbers), intent(in) :: start
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
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
      if (waits) then
         call told(c_put(producer%handle, block), stat, errmsg)
      else
         call told(c_put_async(producer%handle, block), stat, errmsg)
      end if
   end subroutine

   ! Turns a block's box round.  `box` holds what the block then points at.
   logical function describe(block, box, stored, start, ghost_low, ghost_high, number, level, stat, errmsg) result(good)
      type(c_block), intent(inout) :: block
      integer(c_int64_t), intent(inout), target :: box(max_ndim, 4)
      integer(c_int64_t), intent(in) :: stored(:)   ! in C's order
      type(numbers), intent(in) :: start
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = size(stored)
      good = .false.
      box = 0
      if (start%there) then
         if (.not. counts_from_1(start, n, stat, errmsg)) return
         box(1:n, 1) = start%of(n:1:-1) - 1
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
   subroutine alloc_int32(producer, field, dtype, shape, address, start, ghost_low, ghost_high, number, level, stat, &
                          errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      integer(int32), intent(in) :: shape(:)
      type(c_ptr), intent(out) :: address
      integer(int32), intent(in), optional :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
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
      if (.not. describe(block, box, int(shape(size(shape):1:-1), c_int64_t), given_int32(start), ghost_low, &
                         ghost_high, number, level, stat, errmsg)) return
      call told(c_alloc(producer%handle, block, address), stat, errmsg)
   end subroutine

   subroutine alloc_int64(producer, field, dtype, shape, address, start, ghost_low, ghost_high, number, level, stat, &
                          errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      integer(int64), intent(in) :: shape(:)
      type(c_ptr), intent(out) :: address
      integer(int64), intent(in), optional :: start(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
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
      if (.not. describe(block, box, int(shape(size(shape):1:-1), c_int64_t), given_int64(start), ghost_low, &
                         ghost_high, number, level, stat, errmsg)) return
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

   ! The number of the run that was joined, for a checkpoint to remember: see fb_producer_open.
   integer(int64) function fb_producer_run(producer, stat, errmsg) result(run)
      type(fb_producer), intent(in) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      run = 0
      result = c_producer_run(producer%handle, run)
      call told(result, stat, errmsg)
   end function

   ! Which transport was chosen: 'shm' or 'tcp'; empty after an error.
   function fb_producer_transport(producer, stat, errmsg) result(text)
      type(fb_producer), intent(in) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: text
      type(c_ptr) :: name
      integer(c_int) :: result
      result = c_producer_transport(producer%handle, name)
      text = ''
      if (result == FB_OK) text = fortran_text(name)
      call told(result, stat, errmsg)
   end function

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

   ! ---- attributes ----------------------------------------------------------------------------

   subroutine set_attr(producer, key, dtype, count, list, values, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer, intent(in) :: dtype, list
      integer(c_int64_t), intent(in) :: count
      type(c_ptr), intent(in) :: values
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: key_c, field_c
      type(c_attribute) :: attribute
      attribute%size = c_sizeof(attribute)
      key_c = c_text(key); attribute%key = c_loc(key_c)
      if (present(field)) then
         field_c = c_text(field); attribute%field = c_loc(field_c)
      end if
      attribute%dtype = dtype
      attribute%list = list
      attribute%count = count
      attribute%values = values
      call told(c_attr(producer%handle, attribute), stat, errmsg)
   end subroutine

   subroutine attr_logical(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      logical, intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int8_t), target :: given
      given = merge(1_c_int8_t, 0_c_int8_t, value)
      call set_attr(producer, key, FB_BOOL, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_int32(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int32), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t), target :: given
      given = value
      call set_attr(producer, key, FB_I64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_int64(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int64), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t), target :: given
      given = value
      call set_attr(producer, key, FB_I64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_real32(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real32), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      real(c_double), target :: given
      given = value
      call set_attr(producer, key, FB_F64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_real64(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real64), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      real(c_double), target :: given
      given = value
      call set_attr(producer, key, FB_F64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_text(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      character(*), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: text
      type(c_ptr), target :: given
      text = c_text(value); given = c_loc(text)
      call set_attr(producer, key, FB_TEXT, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_int32_list(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int32), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_I64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_int64_list(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int64), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_I64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg)
   end subroutine

   subroutine attr_real64_list(producer, key, value, field, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real64), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      real(c_double), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_F64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg)
   end subroutine

   ! Finds an attribute that is of this type, and a list or not.
   logical function find_attr(attribute, step, key, dtype, list, field, stat, errmsg) result(good)
      type(c_attribute), intent(out) :: attribute
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      integer, intent(in) :: dtype, list
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      type(c_ptr) :: place
      integer(c_int) :: result
      place = c_null_ptr
      if (present(field)) then
         field_c = c_text(field); place = c_loc(field_c)
      end if
      attribute%size = c_sizeof(attribute)
      result = c_attr_get(step%handle, place, c_text(key), attribute)
      good = result == FB_OK
      if (good .and. (attribute%dtype /= dtype .or. attribute%list /= list)) then
         good = .false.
         call refused('attribute '''//trim(key)//''' has another type, or is a list or none', stat, errmsg, &
                      FB_TYPE_MISMATCH)
         return
      end if
      call told(result, stat, errmsg)
   end function

   subroutine attr_get_logical(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      logical, intent(out) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      integer(c_int8_t), pointer :: found
      value = .false.
      if (.not. find_attr(told_of, step, key, FB_BOOL, 0, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found)
      value = found /= 0
   end subroutine

   subroutine attr_get_int64(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      integer(int64), intent(out) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      integer(c_int64_t), pointer :: found
      value = 0
      if (.not. find_attr(told_of, step, key, FB_I64, 0, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found)
      value = found
   end subroutine

   subroutine attr_get_real64(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      real(real64), intent(out) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      real(c_double), pointer :: found
      value = 0
      if (.not. find_attr(told_of, step, key, FB_F64, 0, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found)
      value = found
   end subroutine

   subroutine attr_get_text(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      character(:), allocatable, intent(out) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      type(c_ptr), pointer :: found
      value = ''
      if (.not. find_attr(told_of, step, key, FB_TEXT, 0, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found)
      value = fortran_text(found)
   end subroutine

   subroutine attr_get_int64_list(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      integer(int64), allocatable, intent(out) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      integer(c_int64_t), pointer :: found(:)
      allocate (value(0))
      if (.not. find_attr(told_of, step, key, FB_I64, 1, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found, [told_of%count])
      value = found
   end subroutine

   subroutine attr_get_real64_list(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      real(real64), allocatable, intent(out) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      real(c_double), pointer :: found(:)
      allocate (value(0))
      if (.not. find_attr(told_of, step, key, FB_F64, 1, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found, [told_of%count])
      value = found
   end subroutine

   ! ---- consumer ------------------------------------------------------------------------------

   ! Attaches to a stream, which may not exist yet.  `fields` are the ones that are needed, by default all,
   ! every `every` of the steps at which they are offered.
   subroutine fb_consumer_open(consumer, stream, group, fields, every, timeout, transport, window, start, follow, &
                               start_run, start_step, stat, errmsg)
      type(fb_consumer), intent(out) :: consumer
      character(*), intent(in) :: stream
      character(*), intent(in), optional :: group, fields(:), transport
      integer, intent(in), optional :: every, window, start
      real(real64), intent(in), optional :: timeout
      logical, intent(in), optional :: follow
      integer(int64), intent(in), optional :: start_run, start_step
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
      if (present(start_run)) options%start_run = start_run
      if (present(start_step)) options%start_step = start_step
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
   subroutine get_address_int32(step, field, dtype, address, shape, strides, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: start(:)
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call get(step, field, array, present(strides), given_int32(start), every, stat, errmsg)
   end subroutine

   subroutine get_address_int64(step, field, dtype, address, shape, strides, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: start(:)
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call get(step, field, array, present(strides), given_int64(start), every, stat, errmsg)
   end subroutine

   subroutine get(step, field, array, strided, start, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      type(numbers), intent(in) :: start
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 2)
      type(c_selection) :: selection
      field_c = c_text(field)
      selection%field = c_loc(field_c)
      if (.not. select_part(selection, box, array, strided, start, every, stat, errmsg)) return
      call told(c_get(step%handle, selection), stat, errmsg)
   end subroutine

   ! Turns a selection round.  `box` and `array` hold what the selection then points at.
   logical function select_part(selection, box, array, strided, start, every, stat, errmsg) result(good)
      type(c_selection), intent(inout) :: selection
      integer(c_int64_t), intent(inout), target :: box(max_ndim, 2)
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      type(numbers), intent(in) :: start
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = array%ndim
      good = .false.
      box(:, 1) = 0
      box(:, 2) = 1
      if (start%there) then
         if (.not. counts_from_1(start, n, stat, errmsg)) return
         box(1:n, 1) = start%of(n:1:-1) - 1
      end if
      if (present(every)) then
         if (.not. fits('every', .true., size(every), n, stat, errmsg)) return
         if (any(every < 1)) then
            call refused('every is at least 1', stat, errmsg)
            return
         end if
         box(1:n, 2) = every(n:1:-1)
      end if
      selection%size = c_sizeof(selection)
      selection%dtype = array%dtype
      selection%ndim = n
      selection%offset = c_loc(box(1, 1))
      selection%shape = c_loc(array%shape)
      selection%every = c_loc(box(1, 2))
      selection%data = array%data
      if (strided) selection%strides = c_loc(array%strides)
      good = .true.
   end function

   ! How many blocks a field has at this step.
   integer(int64) function fb_step_block_count(step, field, stat, errmsg) result(count)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      count = 0
      result = c_step_block_count(step%handle, c_text(field), count)
      call told(result, stat, errmsg)
   end function

   ! Shows one block of a field, counted from 1, where it lies: without a copy where the server is on this host.
   ! Valid until the step is released.
   subroutine fb_step_block(step, field, index, view, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer(int64), intent(in) :: index
      type(fb_view), intent(out) :: view
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_view) :: found
      integer(c_int) :: result
      integer :: n
      if (index < 1) then
         call refused('index counts from 1', stat, errmsg)
         return
      end if
      found%size = c_sizeof(found)
      result = c_step_block(step%handle, c_text(field), index - 1, found)
      if (result == FB_OK) then
         n = found%ndim
         view%data = found%data
         view%dtype = found%dtype
         view%rank = found%rank
         view%level = found%level
         view%number = found%number
         view%bytes = found%bytes
         view%placed = found%placed /= 0
         view%start = found%offset(n:1:-1) + 1
         view%shape = found%shape(n:1:-1)
         view%ghost_low = found%ghost_low(n:1:-1)
         view%ghost_high = found%ghost_high(n:1:-1)
         view%stored = view%ghost_low + view%shape + view%ghost_high
         view%has_stats = found%has_stats /= 0
         view%min = found%min
         view%max = found%max
         view%sum = found%sum
         view%count = found%count
         view%non_finite = found%non_finite
      end if
      call told(result, stat, errmsg)
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

   ! ---- space ---------------------------------------------------------------------------------

   ! Finds the group.  `replicas` servers hold each array that is put: all but one may die.
   subroutine fb_space_open(space, group, timeout, transport, replicas, stat, errmsg)
      type(fb_space), intent(out) :: space
      character(*), intent(in), optional :: group, transport
      real(real64), intent(in), optional :: timeout   ! seconds
      integer, intent(in), optional :: replicas
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: group_c, transport_c
      type(c_space_options) :: options
      options%size = c_sizeof(options)
      if (present(group)) then
         group_c = c_text(group); options%group = c_loc(group_c)
      end if
      if (present(transport)) then
         transport_c = c_text(transport); options%transport = c_loc(transport_c)
      end if
      if (present(timeout)) options%timeout = timeout
      if (present(replicas)) options%replicas = replicas
      call told(c_space_open(options, space%handle), stat, errmsg)
   end subroutine

   subroutine space_put(space, name, array, step, start, shape, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      type(placed_array), intent(in), target :: array
      integer(int64), intent(in) :: step
      type(numbers), intent(in) :: start, shape
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c
      integer(c_int64_t), target :: box(max_ndim, 4), global(max_ndim)
      type(c_block) :: block
      type(c_field) :: field
      type(numbers) :: from
      integer :: n
      n = array%ndim
      from = start
      if (.not. start%there) from = numbers(.true., n, 1)
      name_c = c_text(name)
      block%field = c_loc(name_c)
      block%dtype = array%dtype
      block%data = array%data
      block%strides = c_loc(array%strides)
      if (.not. describe(block, box, array%shape(1:n), from, stat=stat, errmsg=errmsg)) return
      global = 0
      global(1:n) = box(1:n, 1) + box(1:n, 2)
      if (shape%there) then
         if (.not. fits('shape', .true., shape%n, n, stat, errmsg)) return
         global(1:n) = shape%of(n:1:-1)
      end if
      field%size = c_sizeof(field)
      field%name = c_loc(name_c)
      field%dtype = array%dtype
      field%ndim = n
      field%shape = c_loc(global)
      call told(c_space_put(space%handle, field, step, block), stat, errmsg)
   end subroutine

   subroutine space_get(space, name, array, step, start, every, timeout, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      type(placed_array), intent(in), target :: array
      integer(int64), intent(in) :: step
      type(numbers), intent(in) :: start
      integer, intent(in), optional :: every(:)
      real(real64), intent(in), optional :: timeout
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c
      integer(c_int64_t), target :: box(max_ndim, 2)
      type(c_selection) :: selection
      real(c_double) :: patience
      patience = 30
      if (present(timeout)) patience = timeout
      name_c = c_text(name)
      selection%field = c_loc(name_c)
      if (.not. select_part(selection, box, array, .true., start, every, stat, errmsg)) return
      call told(c_space_get(space%handle, step, patience, selection), stat, errmsg)
   end subroutine

   ! Removes what was put of a field at a step.
   subroutine fb_space_remove(space, name, step, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      integer(int64), intent(in) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_space_remove(space%handle, c_text(name), step), stat, errmsg)
   end subroutine

   ! Frees the handle; what was put stays.
   subroutine fb_space_close(space, stat, errmsg)
      type(fb_space), intent(inout) :: space
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = space%handle
      space%handle = c_null_ptr
      call told(c_space_close(handle), stat, errmsg)
   end subroutine

   ! ---- general -------------------------------------------------------------------------------

   ! The status of a group as JSON; empty after an error.
   function fb_status(group, stat, errmsg) result(json)
      character(*), intent(in), optional :: group
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      json = text_of(c_admin_status, group, stat, errmsg)
   end function

   ! The text of a group's connection file, once the group is complete, for one rank to hand to all others as their
   ! `group`; empty after an error. It holds the group's secret.
   function fb_group_text(group, stat, errmsg) result(text)
      character(*), intent(in), optional :: group
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: text
      text = text_of(c_group_text, group, stat, errmsg)
   end function

   ! What a function of the library says of a group.
   function text_of(ask, group, stat, errmsg) result(text)
      interface
         function ask(group, text) bind(C) result(r)
            import :: c_int, c_ptr
            type(c_ptr), value :: group
            type(c_ptr), intent(out) :: text
            integer(c_int) :: r
         end function
      end interface
      character(*), intent(in), optional :: group
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: text
      character(:, c_char), allocatable, target :: group_c
      type(c_ptr) :: given, place
      integer(c_int) :: result
      place = c_null_ptr
      if (present(group)) then
         group_c = c_text(group); place = c_loc(group_c)
      end if
      result = ask(place, given)
      text = ''
      if (result == FB_OK) text = fortran_text(given)
      if (result == FB_OK) call c_free(given)
      call told(result, stat, errmsg)
   end function

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
      if (present(errmsg)) errmsg = last_error(result)
      if (.not. present(stat)) call stop_with(last_error(result), int(result))
   end subroutine

   ! The text of the last error.  Where it may name places it says how they are counted.
   function last_error(result) result(text)
      integer(c_int), intent(in) :: result
      character(:), allocatable :: text
      logical :: has_places
      text = fortran_text(c_error())
      has_places = result == FB_OUT_OF_BOUNDS .or. result == FB_NOT_COVERED .or. result == FB_CONFLICT
      if (has_places .and. scan(text, '[') > 0) text = text//' (in C''s order: the slowest dimension first, from 0)'
   end function

   ! Refuses an argument before C sees it.
   subroutine refused(text, stat, errmsg, kind)
      character(*), intent(in) :: text
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer, intent(in), optional :: kind   ! without: FB_OUT_OF_BOUNDS
      integer :: result
      result = FB_OUT_OF_BOUNDS
      if (present(kind)) result = kind
      if (present(stat)) stat = result
      if (present(errmsg)) errmsg = text
      if (.not. present(stat)) call stop_with(text, result)
   end subroutine

   subroutine stop_with(text, result)
      character(*), intent(in) :: text
      integer, intent(in) :: result
      ! `error stop` with a text of variable length is Fortran 2018; this is the same in older compilers.
      write (error_unit, '(4a)') fb_result_name(result), ': ', text
      error stop 1
   end subroutine

   ! Integers as they were given, if they were.
   function given_int32(list) result(given)
      integer(int32), intent(in), optional :: list(:)
      type(numbers) :: given
      integer :: n
      if (.not. present(list)) return
      given%there = .true.
      given%n = size(list)
      n = min(given%n, size(given%of))   ! more are refused for their number
      given%of(1:n) = list(1:n)
   end function

   function given_int64(list) result(given)
      integer(int64), intent(in), optional :: list(:)
      type(numbers) :: given
      integer :: n
      if (.not. present(list)) return
      given%there = .true.
      given%n = size(list)
      n = min(given%n, size(given%of))
      given%of(1:n) = list(1:n)
   end function

   ! Whether `start` has one number for each dimension, each 1 or more.
   logical function counts_from_1(start, n, stat, errmsg) result(good)
      type(numbers), intent(in) :: start
      integer, intent(in) :: n
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      good = fits('start', .true., start%n, n, stat, errmsg)
      if (.not. good) return
      good = all(start%of(1:n) >= 1)
      if (.not. good) call refused('start counts from 1', stat, errmsg)
   end function

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

   ! Whether a list has an entry for each name.
   logical function one_each(what, length, n, stat, errmsg)
      character(*), intent(in) :: what
      integer, intent(in) :: length, n
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(24) :: numbers(2)
      one_each = length == n
      if (one_each) return
      write (numbers, '(i0)') length, n
      call refused(what//' has '//trim(numbers(1))//' entries for '//trim(numbers(2))//' names', stat, errmsg)
   end function

   logical function space_takes(ndim, stat, errmsg)
      integer, intent(in) :: ndim
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      space_takes = ndim <= 4
      if (.not. space_takes) call refused('the space takes and gives arrays of up to 4 dimensions', stat, errmsg)
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

   include 'forebay_types.inc'
   include 'forebay_far.inc'

end module
