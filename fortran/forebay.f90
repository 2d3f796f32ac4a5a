! Forebay for Fortran: stage a simulation's fields in memory, step by step.
!
! SPDX-License-Identifier: Apache-2.0
!
! Shipped as source, since module files differ from compiler to compiler.  There is one file to add to your
! build, this one: compile it with your own code and link with -lforebay.  It includes three that lie beside it:
! forebay_c.inc, the structs and functions of forebay.h, forebay_open.inc, how handles are opened, and forebay_arrays.inc,
! what must stand there once for every type.  It needs Fortran 2018 (assumed rank): gfortran 10 or newer.  There is no MPI in it.
!
!     use forebay
!     type(fb_producer) :: sim
!     call fb_producer_open(sim, 'grayscott', rank=rank, size=size)     ! rank counts from 0
!     call fb_array(sim, 'U', FB_F64, [nx, ny, nz], dims=['x', 'y', 'z'])
!     do ...
!        call fb_producer_begin(sim, number, time)
!        call fb_put(sim, 'U', u, offset=[ix - 1, iy - 1, iz - 1])
!        call fb_producer_end(sim)
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
!     if (rank == 0) job = fb_new_job_name()                      ! character(32) :: job
!     call MPI_Bcast(job, 32, MPI_CHARACTER, 0, comm, error)      ! no rank of another job is taken for one of these
!     call fb_producer_open(sim, 'grayscott', group=text, rank=rank, size=size, job=job)
!
! and in a reader:
!
!     type(fb_consumer) :: viewer
!     type(fb_step) :: step
!     call fb_consumer_open(viewer, 'grayscott')
!     do while (fb_consumer_next(viewer, step))
!        call fb_get(step, 'U', plane, offset=[0, 0, 32])
!        call fb_step_release(step)
!     end do
!     call fb_consumer_close(viewer)
!
! Arrays that are kept until they are removed, whoever puts them:
!
!     type(fb_space) :: space
!     call fb_space_open(space)
!     call fb_space_put(space, 'T', t, step=7_int64, offset=[i - 1, 0])
!     call fb_space_get(space, 'T', part, step=7_int64, offset=[0, 0])
!     call fb_space_close(space)
!
! A pipeline that the ranks drive themselves (docs/driving.md):
!
!     type(fb_pipeline) :: mean
!     call fb_pipeline_open(mean, 'mean', rank=rank, size=size)
!     call fb_array(fb_pipeline_producer(mean), 'U', FB_F64, [nx, ny, nz])
!     do ...
!        call fb_pipeline_activate(mean, number, time)
!        call fb_pipeline_stage(mean, 'U', u, offset=[ix - 1, iy - 1, iz - 1])
!        call fb_pipeline_execute(mean, number)
!        call fb_pipeline_deactivate(mean, number)
!     end do
!     call fb_pipeline_close(mean)
!
! The order of dimensions.  Bytes are never transposed.  Everything here is in Fortran's order, the first
! dimension varying fastest, and is turned round on its way: U(x, y, z) of shape [nx, ny, nz] with dims
! ['x', 'y', 'z'] is U[z, y, x] of shape (nz, ny, nx) with dims ("z", "y", "x") in C and Python.
!
! Where things are.  `offset` is how many elements of the whole lie before the block's first one in each dimension, ghosts
! not counted: the local array u(1:n) that is part (i:i+n-1) of the whole has offset=[i-1].  It counts from 0 here too, as
! in the other languages, MPI and HDF5.  The array that is passed includes its ghosts; to put
! only the interior of a larger array, pass it as a section, u(2:nx+1, 2:ny+1): it is read where it lies.
!
! What may be passed.  Arrays, sections of them and components of arrays, p(:)%x, are read and written where they
! lie.  Of an expression, 2*u, the compiler makes a copy for the call; fb_put_async too is done with it when it
! returns.  One defect of gfortran (12, at least) cannot be mended here: a pointer to a component, q => p%x, that
! another procedure associated than the one that passes it on arrives wrong in every call, Forebay's or not.  Pass
! p%x itself.
!
! Integers.  `offset` and the shapes of fb_array, fb_alloc and fb_space_put may be of kind int32 or int64; all that can
! only be small is a default integer.
!
! Errors.  Every call takes `stat` (FB_OK or the kind of error) and `errmsg` (the text).  Without `stat` an
! error stops the program with its text.  A text that names shapes or places has them as C does, the slowest dimension
! first and counted from 0, and says so.  What is said of threads and fork in forebay.h holds here too.
module forebay
   use, intrinsic :: iso_c_binding
   use, intrinsic :: ieee_arithmetic, only: ieee_value, ieee_quiet_nan
   use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
   implicit none
   private

   ! The numbers of forebay.h.
   ! generated from interface/forebay.toml: numbers
   integer, parameter, public :: FB_OK = 0, FB_INVALID = 1, FB_NOT_FOUND = 2, FB_TIMEOUT = 3, FB_LOST = 4, &
      FB_NOT_COVERED = 5, FB_CONFLICT = 6, FB_TYPE_MISMATCH = 7, FB_OUT_OF_BOUNDS = 8, FB_OVER_BUDGET = 9, &
      FB_FULL = 10, FB_CLOSED = 11, FB_WRONG_SECRET = 12, FB_WRONG_VERSION = 13, FB_UNREACHABLE = 14, &
      FB_PROTOCOL = 15, FB_CONNECTION_FILE = 16, FB_UNSUPPORTED = 17, FB_STEP_ORDER = 18, FB_FORKED = 19, &
      FB_ENDED = 20, FB_TORN = 21, FB_DROPPED = 22, FB_PIPELINE_FAILED = 23, FB_INTERNAL = 24, FB_IO = 25, &
      FB_CRASHED = 26
   integer, parameter, public :: FB_BOOL = 1, FB_I8 = 2, FB_U8 = 3, FB_I16 = 4, FB_U16 = 5, FB_I32 = 6, &
      FB_U32 = 7, FB_I64 = 8, FB_U64 = 9, FB_F16 = 10, FB_BF16 = 11, FB_F32 = 12, FB_F64 = 13, FB_C64 = 14, &
      FB_C128 = 15, FB_TEXT = 16
   integer, parameter, public :: FB_ASSOCIATION_CELL = 0, FB_ASSOCIATION_VERTEX = 1
   integer, parameter, public :: FB_POLICY_DROP_OLDEST = 0, FB_POLICY_BLOCK = 1, FB_POLICY_LATEST = 2
   integer, parameter, public :: FB_ON_LOSS_SKIP = 0, FB_ON_LOSS_FAIL = 1
   integer, parameter, public :: FB_DURABILITY_LOCAL = 0, FB_DURABILITY_REPLICATED = 1
   integer, parameter, public :: FB_PLACEMENT_NEAREST = 0, FB_PLACEMENT_BY_BLOCK = 1, FB_PLACEMENT_FUNCTION = 2
   integer, parameter, public :: FB_START_NEXT = 0, FB_START_OLDEST = 1, FB_START_CURSOR = 2, &
      FB_START_LATEST = 3, FB_START_RUN = 4, FB_START_HELD = 5, FB_START_RESUME = 6
   integer, parameter, public :: FB_TAKE_ALL = 0, FB_TAKE_LATEST = 1
   integer, parameter, public :: FB_SHARE_NONE = 0, FB_SHARE_ON_DEMAND = 1, FB_SHARE_ROUND_ROBIN = 2
   integer, parameter, public :: FB_ON_RANK_LOSS_FAIL = 0, FB_ON_RANK_LOSS_GO_ON = 1
   integer, parameter, public :: FB_STATS_NONE = 0, FB_STATS_ALONG = 1, FB_STATS_ALONE = 2
   integer, parameter, public :: FB_HOLES_REFUSED = 0, FB_HOLES_LEFT = 1
   integer, parameter, public :: FB_OUTCOME_STAGED = 0, FB_OUTCOME_UNDEMANDED = 1, FB_OUTCOME_DROPPED = 2
   integer, parameter, public :: FB_ON_EACH = 0, FB_ON_RISE = 1, FB_ON_FALL = 2, FB_ON_BOTH = 3
   integer, parameter, public :: FB_MISSING_SKIP = 0, FB_MISSING_RESET = 1
   integer, parameter, public :: FB_BEGIN_RESUME = 0, FB_BEGIN_NEXT = 1, FB_BEGIN_FIRST = 2, FB_BEGIN_AFTER = 3
   integer, parameter, public :: FB_TURN_UNKNOWN = 0, FB_TURN_ROSE = 1, FB_TURN_HOLDS = 2, FB_TURN_FELL = 3
   integer, parameter, public :: FB_VALUE_UNKNOWN = 0, FB_VALUE_NUMBER = 1, FB_VALUE_CONDITION = 2, FB_VALUE_PLACE = 3
   integer, parameter, public :: FB_CHANGE_PAUSE = 0, FB_CHANGE_RESUME = 1, FB_CHANGE_REMOVE = 2
   ! end of what is generated

   integer, parameter :: max_ndim = 8, name_room = 256

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
      integer :: attempt = 0         ! where readers share steps: how often one was given it that did not finish with it
      logical :: torn = .false.      ! a rank died in it or left it out: parts may be missing
      type(c_ptr), private :: handle = c_null_ptr
   end type

   ! A stream, looked at from outside.
   type, public :: fb_stream
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! Arrays by name, step and region.
   type, public :: fb_space
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! One rank that drives a pipeline itself; what a pipeline was asked for.
   type, public :: fb_pipeline
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   type, public :: fb_request
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! What looks after a group.  Servers are named by their numbers.
   type, public :: fb_admin
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! What an expression gives, or one of the values of an event.
   type, public :: fb_value
      character(:), allocatable :: label               ! of an event's: the binding's name, or the aggregate as a text
      integer :: kind = FB_VALUE_UNKNOWN               ! FB_VALUE_...
      real(real64) :: number = 0                       ! a condition as 0 or 1
      logical :: is_integer = .false.
      integer(int64) :: integer = 0                    ! the nearest integer of 64 bits
      integer(int64) :: nan = 0                        ! how many of the elements were no numbers
      logical :: has_place = .false.                   ! whether what follows means anything
      integer(int64), allocatable :: index(:)          ! in the global array, in Fortran's order, counted from 1
      integer :: level = 0                             ! its refinement level
      logical :: in_block = .false.                    ! whether `index` counts in a block that has no place in a global array
      integer :: rank = 0                              ! then: who put that block,
      integer(int64) :: block = 0                      ! and its number
   end type
   ! An expression that the servers watch from step to step.
   type, public :: fb_subscription
      private
      type(c_ptr) :: handle = c_null_ptr
   end type
   ! What happened.  It holds its step until that is taken, or until it is released.
   type, public :: fb_event
      integer :: turn = FB_TURN_UNKNOWN                ! FB_TURN_...; unknown: `why` says why
      integer(int64) :: number = 0, run = 0, step = 0  ! its number among the subscription's events, from 1 on; the step
      real(real64) :: time = 0                         ! physical time; not a number if the producer gave none
      integer(int64) :: episode = 0, first = 0         ! the number of the episode, and the step at which it began
      integer(int64) :: missing = 0                    ! how many evaluations of the episode gave nothing known
      integer(int64) :: missed = 0                     ! how many events before it were forgotten before they could be told
      type(fb_value), allocatable :: values(:)         ! the bindings and aggregates
      character(:), allocatable :: why
      type(c_ptr), private :: handle = c_null_ptr
   end type
   ! A name of a dimension.
   type, public :: fb_label
      character(:), allocatable :: text
   end type
   ! What a field is at a step, in Fortran's order of dimensions.
   type, public :: fb_field_info
      character(:), allocatable :: name
      integer :: dtype = 0, association = FB_ASSOCIATION_CELL, ndim = 0, every = 1
      logical :: placed = .false.                      ! whether it has a global shape
      integer(int64), allocatable :: shape(:)          ! empty if it has none
      type(fb_label), allocatable :: dims(:)           ! empty if the producer gave none, as the next two
      real(real64), allocatable :: spacing(:), origin(:)
      character(:), allocatable :: units
      logical, allocatable :: periodic(:)              ! whether the domain goes on with its first elements behind its last ones
      integer(int64), allocatable :: refinement(:)     ! how many elements of a level lie where one of that below does; 0: not said
      logical :: is_static = .false.                   ! whether it belongs to the run, and not to this step alone
   end type
   ! A field that a reader needs: made by the function of this name, below.
   type, public :: fb_need
      private
      character(name_room) :: field = ''
      integer :: dtype = 0, every = 1, stats = FB_STATS_NONE
      integer(int64) :: first = 0
      logical :: optional = .false.
      integer :: given(3) = 0                          ! how many numbers there are of the next three
      integer(c_int64_t) :: part(2*max_ndim, 3) = 0
   end type
   ! Statistics of a whole field, of all its blocks without their ghosts.  Infinities are values; NaN take no part.
   type, public :: fb_stats
      real(real64) :: min = 0, max = 0, sum = 0        ! not a number, and 0, if there are only NaN
      real(real64) :: variance = 0                     ! with `count` as divisor
      integer(int64) :: count = 0, nan = 0             ! how many elements are numbers, and how many not
   end type
   ! One block of a step, shown where it lies: call c_f_pointer(view%data, array, view%stored).
   type, public :: fb_view
      type(c_ptr) :: data = c_null_ptr                 ! read-only; null for an empty block
      integer :: dtype = 0, rank = 0, level = 0        ! FB_...; who put it; refinement level
      integer(int64) :: number = 0, bytes = 0
      integer :: server = 0                            ! the number of the one that holds it
      logical :: placed = .false.                      ! whether `offset` means anything
      integer(int64), allocatable :: offset(:), shape(:), ghost_low(:), ghost_high(:)
      integer(int64), allocatable :: step(:)           ! how far apart its elements lie: 1, but where a contract has a stride
      integer(int64), allocatable :: stored(:)         ! of the array in memory: with its ghosts
      logical :: has_stats = .false.                   ! whether those below mean anything: see `stats` of fb_need
      real(real64) :: min = 0, max = 0, sum = 0        ! of the interior; infinities are values
      integer(int64) :: count = 0, nan = 0             ! how many elements are numbers, and how many not: these take no part
      real(real64) :: variance = 0                     ! with `count` as divisor
      integer(int64) :: tiles = 0                      ! how many tiles of 64 KiB its interior has, if more than one
      type(c_ptr) :: tile_bounds = c_null_ptr          ! the smallest and the largest element of each: (2, tiles)
   end type

   public :: fb_producer_open, fb_array, fb_particles, fb_buffer, fb_attr, fb_producer_begin, fb_demanded
   public :: fb_put, fb_put_address, fb_put_async, fb_put_async_address, fb_wait, fb_alloc, fb_commit, fb_abort
   public :: fb_producer_end, fb_flush, fb_producer_run, fb_producer_transport, fb_producer_lost, fb_producer_close
   public :: fb_producer_abandon, fb_pipeline_abandon
   public :: fb_pipeline_open, fb_pipeline_producer, fb_pipeline_activate, fb_pipeline_activate_async
   public :: fb_pipeline_stage, fb_pipeline_stage_async, fb_pipeline_execute, fb_pipeline_execute_async
   public :: fb_pipeline_deactivate, fb_pipeline_active, fb_pipeline_close, fb_request_wait, fb_request_free
   public :: fb_consumer_open, fb_consumer_need, fb_consumer_next, fb_consumer_poll, fb_consumer_cursor
   public :: fb_step_field_name, fb_step_field, fb_step_shape, fb_step_stats
   public :: fb_attr_get, fb_attr_key, fb_get, fb_get_address, fb_covered
   public :: fb_step_block_count, fb_step_block, fb_step_release, fb_consumer_close
   public :: fb_step_give_back, fb_consumer_abandon
   public :: fb_step_mine_count, fb_step_mine, fb_step_mine_region
   public :: fb_step_row_count, fb_get_rows_address, fb_view_bounds, fb_rank_bounds, fb_put_rank_bounds, fb_step_rank_bounds
   public :: fb_stream_open, fb_stream_steps, fb_stream_latest, fb_stream_at, fb_stream_close
   public :: fb_step_evaluate, fb_space_evaluate, fb_subscribe, fb_subscription_name, fb_subscription_wait_active
   public :: fb_subscription_cursor
   public :: fb_subscription_change, fb_subscription_close, fb_event_next, fb_event_step, fb_event_release
   public :: fb_admin_subscriptions, fb_admin_change_subscription
   public :: fb_space_open, fb_space_put, fb_space_get, fb_space_remove, fb_space_list, fb_space_close
   public :: fb_admin_open, fb_admin_status, fb_admin_contracts, fb_admin_add_servers, fb_admin_remove_server, fb_admin_heal
   public :: fb_admin_create_pipeline, fb_admin_destroy_pipeline, fb_admin_shutdown, fb_admin_close
   public :: fb_group_text, fb_new_job_name, fb_version, fb_result_name, fb_result_is_retryable, fb_error_server

   ! fb_need(field, [every], [first], [optional], [dtype], [stats], [offset], [shape], [stride]): a field that a reader needs, and
   ! which part of it; only that leaves the simulation, and reading anything else is FB_NOT_COVERED.  `every` so many of the steps
   ! at which it is offered, counted from step `first` on; `optional`: it may be declared later, or never; `dtype` is FB_...,
   ! and 0 any; `stats` is FB_STATS_ALONG, or FB_STATS_ALONE, for which no data leaves the simulation.  The part has `shape`
   ! elements behind the first `offset` ones, every `stride`; all of it without `shape`.
   !    needs=[fb_need('U', every=10), fb_need('V', offset=[0, 31], shape=[64, 1])]
   interface fb_need
      module procedure need_int32, need_int64
   end interface
   ! call fb_put(producer, field, array, [offset], [ghost_low], [ghost_high], [number], [level], [outcome], [stat], [errmsg])
   ! for arrays of 0 to 4 dimensions of these types; fb_put_address takes all others.  One copy; the array is yours again
   ! when it returns.  `outcome` is FB_OUTCOME_...
   interface fb_put
      ! generated from interface/forebay.toml: generic put
      module procedure put_int32, put_int64, put_real32, put_real64, put_complex32, put_complex64, put_int32_far, &
         put_int64_far, put_real32_far, put_real64_far, put_complex32_far, put_complex64_far
      ! end of what is generated
   end interface
   ! The same without waiting for the server's answer: fb_wait, fb_flush and fb_producer_end do that, and tell what failed.
   ! The array is yours again when it returns, all the same.
   interface fb_put_async
      ! generated from interface/forebay.toml: generic put_async
      module procedure put_async_int32, put_async_int64, put_async_real32, put_async_real64, put_async_complex32, &
         put_async_complex64, put_async_int32_far, put_async_int64_far, put_async_real32_far, put_async_real64_far, &
         put_async_complex32_far, put_async_complex64_far
      ! end of what is generated
   end interface
   ! call fb_attr(producer, key, value, [field], [stat], [errmsg], [of_step]) sets an attribute of the stream, of a field,
   ! or with of_step=.true. of the open step alone,
   ! for the rest of the run.  Lists have one dimension, and are not turned round.
   interface fb_attr
      module procedure attr_logical, attr_int32, attr_int64, attr_real32, attr_real64, attr_text, attr_int32_list, &
         attr_int64_list, attr_real64_list, attr_logical_list, attr_text_list, attr_complex64, attr_complex64_list
   end interface
   ! call fb_attr_get(step, key, value, [field], [stat], [errmsg]) reads one; its type must be the value's.
   interface fb_attr_get
      module procedure attr_get_logical, attr_get_int64, attr_get_real64, attr_get_text, attr_get_int64_list, &
         attr_get_real64_list, attr_get_logical_list, attr_get_text_list, attr_get_complex64, attr_get_complex64_list
   end interface
   ! call fb_pipeline_stage(pipeline, ...), as fb_put: a block of the step that was activated last.
   interface fb_pipeline_stage
      ! generated from interface/forebay.toml: generic pipeline_stage
      module procedure pipeline_stage_int32, pipeline_stage_int64, pipeline_stage_real32, pipeline_stage_real64, &
         pipeline_stage_complex32, pipeline_stage_complex64, pipeline_stage_int32_far, pipeline_stage_int64_far, &
         pipeline_stage_real32_far, pipeline_stage_real64_far, pipeline_stage_complex32_far, &
         pipeline_stage_complex64_far
      ! end of what is generated
   end interface
   ! As fb_put_async: fb_pipeline_execute and fb_pipeline_deactivate wait for the answers.
   interface fb_pipeline_stage_async
      ! generated from interface/forebay.toml: generic pipeline_stage_async
      module procedure pipeline_stage_async_int32, pipeline_stage_async_int64, pipeline_stage_async_real32, &
         pipeline_stage_async_real64, pipeline_stage_async_complex32, pipeline_stage_async_complex64, &
         pipeline_stage_async_int32_far, pipeline_stage_async_int64_far, pipeline_stage_async_real32_far, &
         pipeline_stage_async_real64_far, pipeline_stage_async_complex32_far, pipeline_stage_async_complex64_far
      ! end of what is generated
   end interface
   ! call fb_space_put(space, name, array, step, [offset], [shape], [stat], [errmsg]): keeps a part of an array of
   ! global `shape` (default: the part with what is before it).  For arrays of 0 to 4 dimensions.
   interface fb_space_put
      ! generated from interface/forebay.toml: generic space_put
      module procedure space_put_int32, space_put_int64, space_put_real32, space_put_real64, space_put_complex32, &
         space_put_complex64, space_put_int32_far, space_put_int64_far, space_put_real32_far, space_put_real64_far, &
         space_put_complex32_far, space_put_complex64_far
      ! end of what is generated
   end interface
   ! call fb_space_get(space, name, array, step, [offset], [every], [timeout], [stat], [errmsg]): as much as the
   ! array holds, waiting up to `timeout` seconds (default: as it was opened) until all of it was put.
   interface fb_space_get
      ! generated from interface/forebay.toml: generic space_get
      module procedure space_get_int32, space_get_int64, space_get_real32, space_get_real64, space_get_complex32, &
         space_get_complex64, space_get_int32_far, space_get_int64_far, space_get_real32_far, space_get_real64_far, &
         space_get_complex32_far, space_get_complex64_far
      ! end of what is generated
   end interface
   ! call fb_get(step, field, array, [offset], [every], [holes], [stat], [errmsg]): as much as the array holds.  With
   ! `holes` FB_HOLES_LEFT a region with holes can be read: the array is left there as it was.
   interface fb_get
      ! generated from interface/forebay.toml: generic get
      module procedure get_int32, get_int64, get_real32, get_real64, get_complex32, get_complex64, get_int32_far, &
         get_int64_far, get_real32_far, get_real64_far, get_complex32_far, get_complex64_far
      ! end of what is generated
   end interface
   ! Where an array lies in memory, in C's order.
   interface locate
      module procedure locate_int32, locate_int64, locate_real32, locate_real64, locate_complex32, locate_complex64
   end interface
   ! Integers of either kind: the step's number; the shape; `offset`, if it is present.
   interface fb_producer_begin
      module procedure producer_begin_int32, producer_begin_int64
   end interface
   ! A step of either kind of integer; what each does stands at pipeline_activate_int64 and the like.
   interface fb_pipeline_activate
      module procedure pipeline_activate_int32, pipeline_activate_int64
   end interface
   interface fb_pipeline_activate_async
      module procedure pipeline_activate_async_int32, pipeline_activate_async_int64
   end interface
   interface fb_pipeline_execute
      module procedure pipeline_execute_int32, pipeline_execute_int64
   end interface
   interface fb_pipeline_execute_async
      module procedure pipeline_execute_async_int32, pipeline_execute_async_int64
   end interface
   interface fb_pipeline_deactivate
      module procedure pipeline_deactivate_int32, pipeline_deactivate_int64
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

   ! generated from interface/forebay.toml: to_place
   type, bind(C), public :: fb_to_place
      integer(c_int64_t) :: struct_size = 0
      type(c_ptr) :: field = c_null_ptr
      integer(c_int64_t) :: number = 0
      integer(c_int32_t) :: rank = 0
      integer(c_int32_t) :: ndim = 0
      type(c_ptr) :: offset = c_null_ptr
      type(c_ptr) :: shape = c_null_ptr
      type(c_ptr) :: servers = c_null_ptr
      integer(c_int64_t) :: servers_count = 0
   end type
   ! end of what is generated

   include 'forebay_c.inc'

contains

   ! ---- producer ------------------------------------------------------------------------------

   ! Adds a particle species: fields `species/name` that share one count.  `ndims` has 1 for each, or 2 for vectors:
   ! then the last of the two dimensions counts the particles, as in x(3, n).  Without it all are 1.
   subroutine fb_particles(producer, species, names, dtypes, ndims, units, every, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: species, names(:)
      integer, intent(in) :: dtypes(:)
      integer, intent(in), optional :: ndims(:), every
      character(*), intent(in), optional :: units(:)   ! of each
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(name_room, c_char), allocatable, target :: names_c(:), units_c(:)
      type(c_field) :: fields(size(names))
      integer :: i
      if (.not. names_fit('names', names, stat, errmsg)) return
      if (.not. one_each('dtypes', size(dtypes), size(names), stat, errmsg)) return
      if (present(ndims)) then
         if (.not. one_each('ndims', size(ndims), size(names), stat, errmsg)) return
      end if
      if (present(units)) then
         if (.not. one_each('units', size(units), size(names), stat, errmsg)) return
         if (.not. names_fit('units', units, stat, errmsg)) return
      end if
      allocate (names_c(size(names)), units_c(size(names)))
      do i = 1, size(names)
         names_c(i) = trim(names(i))//c_null_char
         fields(i)%struct_size = c_sizeof(fields(i))
         fields(i)%name = c_loc(names_c(i))
         fields(i)%dtype = dtypes(i)
         fields(i)%ndim = 1
         if (present(ndims)) fields(i)%ndim = ndims(i)
         if (present(units)) then
            units_c(i) = trim(units(i))//c_null_char
            fields(i)%units = c_loc(units_c(i))
         end if
         if (present(every)) fields(i)%every = every
      end do
      call told(c_particles(producer%handle, c_text(species), fields, size(names, kind=c_int32_t), &
                            int(storage_size(fields)/8, c_int32_t)), stat, errmsg)
   end subroutine

   ! Declares that ranks say which part of space, of so many dimensions, they have: fb_put_rank_bounds.  It is a field like
   ! others, called 'rank_bounds'.
   subroutine fb_rank_bounds(producer, ndim, every, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer, intent(in) :: ndim
      integer, intent(in), optional :: every
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t) :: period
      period = 1
      if (present(every)) period = every
      call told(c_rank_bounds(producer%handle, int(ndim, c_int32_t), period), stat, errmsg)
   end subroutine

   ! Says which part of space this rank has at the open step: the lowest and the highest place of what is its own, and of this
   ! and its ghosts.
   subroutine fb_put_rank_bounds(producer, low, high, ghost_low, ghost_high, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      real(real64), intent(in) :: low(:), high(:)
      real(real64), intent(in), optional :: ghost_low(:), ghost_high(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      real(real64) :: outer_low(size(low)), outer_high(size(low))
      logical :: alike
      alike = size(high) == size(low)
      if (present(ghost_low)) alike = alike .and. size(ghost_low) == size(low)
      if (present(ghost_high)) alike = alike .and. size(ghost_high) == size(low)
      if (.not. alike) then
         call refused('low, high and those of ghosts have to have one length', stat, errmsg)
         return
      end if
      outer_low = low
      outer_high = high
      if (present(ghost_low)) outer_low = ghost_low
      if (present(ghost_high)) outer_high = ghost_high
      call told(c_put_rank_bounds(producer%handle, size(low, kind=c_int32_t), low, high, outer_low, outer_high), stat, errmsg)
   end subroutine

   ! Adds a buffer: bytes, of another length at each step and rank if need be.  It is put with fb_put_address as
   ! FB_U8 with one dimension and without `offset`.
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

   subroutine producer_begin_int64(producer, number, time, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int64), intent(in) :: number
      real(real64), intent(in), optional :: time
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_producer_begin(producer%handle, number, moment(time)), stat, errmsg)
   end subroutine

   subroutine producer_begin_int32(producer, number, time, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer(int32), intent(in) :: number
      real(real64), intent(in), optional :: time
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_producer_begin(producer%handle, int(number, c_int64_t), moment(time)), stat, errmsg)
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
   subroutine put_address_int32(producer, field, dtype, address, shape, strides, offset, ghost_low, ghost_high, number, &
                             level, outcome, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: offset(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome, stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .true., given_int32(offset), ghost_low, ghost_high, number, &
               level, outcome, stat, errmsg)
   end subroutine

   subroutine put_address_int64(producer, field, dtype, address, shape, strides, offset, ghost_low, ghost_high, number, &
                             level, outcome, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: offset(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome, stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .true., given_int64(offset), ghost_low, ghost_high, number, &
               level, outcome, stat, errmsg)
   end subroutine

   ! The same without waiting for the server's answer: see fb_put_async.
   subroutine put_async_address_int32(producer, field, dtype, address, shape, strides, offset, ghost_low, ghost_high, &
                                   number, level, outcome, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: offset(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome, stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .false., given_int32(offset), ghost_low, ghost_high, number, &
               level, outcome, stat, errmsg)
   end subroutine

   subroutine put_async_address_int64(producer, field, dtype, address, shape, strides, offset, ghost_low, ghost_high, &
                                   number, level, outcome, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: offset(:)
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome, stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call put(producer, field, array, present(strides), .false., given_int64(offset), ghost_low, ghost_high, number, &
               level, outcome, stat, errmsg)
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

   subroutine put(producer, field, array, strided, waits, offset, ghost_low, ghost_high, number, level, outcome, stat, &
                  errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided, waits
      type(numbers), intent(in) :: offset
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome, stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 4)
      type(c_block) :: block
      integer(c_int32_t), target :: became
      integer(c_int) :: result
      field_c = c_text(field)
      block%field = c_loc(field_c)
      block%dtype = array%dtype
      block%data = array%data
      became = FB_OUTCOME_STAGED
      block%outcome = c_loc(became)
      if (strided) block%strides = c_loc(array%strides)
      if (.not. describe(block, box, array%shape(1:array%ndim), offset, ghost_low, ghost_high, number, level, stat, errmsg)) &
         return
      if (waits) then
         result = c_put(producer%handle, block)
      else
         result = c_put_async(producer%handle, block)
      end if
      if (present(outcome)) outcome = became
      call told(result, stat, errmsg)
   end subroutine

   ! Turns a block's box round.  `box` holds what the block then points at.
   logical function describe(block, box, stored, offset, ghost_low, ghost_high, number, level, stat, errmsg) result(good)
      type(c_block), intent(inout) :: block
      integer(c_int64_t), intent(inout), target :: box(max_ndim, 4)
      integer(c_int64_t), intent(in) :: stored(:)   ! in C's order
      type(numbers), intent(in) :: offset
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = size(stored)
      good = .false.
      box = 0
      if (offset%there) then
         if (.not. counts_from_0(offset, n, stat, errmsg)) return
         box(1:n, 1) = offset%of(n:1:-1)
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
      block%struct_size = c_sizeof(block)
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
   subroutine alloc_int32(producer, field, dtype, shape, address, offset, ghost_low, ghost_high, number, level, stat, &
                          errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      integer(int32), intent(in) :: shape(:)
      type(c_ptr), intent(out) :: address
      integer(int32), intent(in), optional :: offset(:)
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
      if (.not. describe(block, box, int(shape(size(shape):1:-1), c_int64_t), given_int32(offset), ghost_low, &
                         ghost_high, number, level, stat, errmsg)) return
      call told(c_alloc(producer%handle, block, address), stat, errmsg)
   end subroutine

   subroutine alloc_int64(producer, field, dtype, shape, address, offset, ghost_low, ghost_high, number, level, stat, &
                          errmsg)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      integer(int64), intent(in) :: shape(:)
      type(c_ptr), intent(out) :: address
      integer(int64), intent(in), optional :: offset(:)
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
      if (.not. describe(block, box, int(shape(size(shape):1:-1), c_int64_t), given_int64(offset), ghost_low, &
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
   subroutine fb_producer_end(producer, stat, errmsg)
      type(fb_producer), intent(in) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_producer_end(producer%handle), stat, errmsg)
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

   ! Ends the stream for this rank.  A run has finished when all its ranks have done so; one that ends without it has
   ! crashed, and readers are told FB_CRASHED after all that can be read.
   subroutine fb_producer_close(producer, stat, errmsg)
      type(fb_producer), intent(inout) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = producer%handle
      producer%handle = c_null_ptr
      call told(c_producer_close(handle), stat, errmsg)
   end subroutine

   ! Gives up this rank without closing the stream: readers are told that the run has crashed, as if this process had
   ! ended.  For a simulation that fails and goes on as a process.
   subroutine fb_producer_abandon(producer, stat, errmsg)
      type(fb_producer), intent(inout) :: producer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = producer%handle
      producer%handle = c_null_ptr
      call told(c_producer_abandon(handle), stat, errmsg)
   end subroutine

   ! ---- attributes ----------------------------------------------------------------------------

   subroutine set_attr(producer, key, dtype, count, list, values, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer, intent(in) :: dtype, list
      integer(c_int64_t), intent(in) :: count
      type(c_ptr), intent(in) :: values
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      character(:, c_char), allocatable, target :: key_c, field_c
      type(c_attribute) :: attribute
      attribute%struct_size = c_sizeof(attribute)
      key_c = c_text(key); attribute%key = c_loc(key_c)
      if (present(field)) then
         field_c = c_text(field); attribute%field = c_loc(field_c)
      end if
      attribute%dtype = dtype
      attribute%list = list
      attribute%count = count
      attribute%values = values
      if (present(of_step)) then
         if (of_step) then
            call told(c_attr_step(producer%handle, attribute), stat, errmsg)
            return
         end if
      end if
      call told(c_attr(producer%handle, attribute), stat, errmsg)
   end subroutine

   subroutine attr_logical(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      logical, intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int8_t), target :: given
      given = merge(1_c_int8_t, 0_c_int8_t, value)
      call set_attr(producer, key, FB_BOOL, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_int32(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int32), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int64_t), target :: given
      given = value
      call set_attr(producer, key, FB_I64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_int64(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int64), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int64_t), target :: given
      given = value
      call set_attr(producer, key, FB_I64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_real32(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real32), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      real(c_double), target :: given
      given = value
      call set_attr(producer, key, FB_F64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_real64(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real64), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      real(c_double), target :: given
      given = value
      call set_attr(producer, key, FB_F64, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_complex64(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      complex(real64), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      complex(c_double_complex), target :: given
      given = value
      call set_attr(producer, key, FB_C128, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_text(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      character(*), intent(in) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      character(:, c_char), allocatable, target :: text
      type(c_ptr), target :: given
      text = c_text(value); given = c_loc(text)
      call set_attr(producer, key, FB_TEXT, 1_c_int64_t, 0, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_int32_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int32), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int64_t), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_I64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_int64_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      integer(int64), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int64_t), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_I64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_real64_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      real(real64), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      real(c_double), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_F64, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_complex64_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      complex(real64), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      complex(c_double_complex), target :: given(size(value) + 1)
      given(:size(value)) = value
      call set_attr(producer, key, FB_C128, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_logical_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      logical, intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      integer(c_int8_t), target :: given(size(value) + 1)
      given(:size(value)) = merge(1_c_int8_t, 0_c_int8_t, value)
      call set_attr(producer, key, FB_BOOL, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   subroutine attr_text_list(producer, key, value, field, stat, errmsg, of_step)
      type(fb_producer), intent(in) :: producer
      character(*), intent(in) :: key
      character(*), intent(in) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      logical, intent(in), optional :: of_step
      character(len(value) + 1, c_char), allocatable, target :: texts(:)
      type(c_ptr), target :: given(size(value) + 1)
      integer :: i
      allocate (texts(size(value)))
      do i = 1, size(value)
         texts(i) = trim(value(i))//c_null_char
         given(i) = c_loc(texts(i))
      end do
      call set_attr(producer, key, FB_TEXT, size(value, kind=c_int64_t), 1, c_loc(given), field, stat, errmsg, of_step)
   end subroutine

   ! The key of one of the attributes of the stream, or of a field, counted from 1; empty past the last one, with
   ! FB_NOT_FOUND.
   function fb_attr_key(step, index, field, stat, errmsg) result(key)
      type(fb_step), intent(in) :: step
      integer, intent(in) :: index
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: key
      character(:, c_char), allocatable :: field_c
      type(c_ptr) :: found
      integer(c_int) :: result
      key = ''
      if (index < 1) then
         call refused('index counts from 1', stat, errmsg)
         return
      end if
      if (present(field)) field_c = c_text(field)
      result = c_attr_key(step%handle, field_c, int(index - 1, c_int64_t), found)
      if (result == FB_OK) key = fortran_text(found)
      call told(result, stat, errmsg)
   end function

   ! Finds an attribute that is of this type, and a list or not.
   logical function find_attr(attribute, step, key, dtype, list, field, stat, errmsg) result(good)
      type(c_attribute), intent(out) :: attribute
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      integer, intent(in) :: dtype, list
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable :: field_c
      integer(c_int) :: result
      if (present(field)) field_c = c_text(field)
      attribute%struct_size = c_sizeof(attribute)
      result = c_attr_get(step%handle, field_c, c_text(key), attribute)
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

   subroutine attr_get_complex64(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      complex(real64), intent(out) :: value
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      complex(c_double_complex), pointer :: found
      value = 0
      if (.not. find_attr(told_of, step, key, FB_C128, 0, field, stat, errmsg)) return
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

   subroutine attr_get_complex64_list(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      complex(real64), allocatable, intent(out) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      complex(c_double_complex), pointer :: found(:)
      allocate (value(0))
      if (.not. find_attr(told_of, step, key, FB_C128, 1, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found, [told_of%count])
      value = found
   end subroutine

   subroutine attr_get_logical_list(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      logical, allocatable, intent(out) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      integer(c_int8_t), pointer :: found(:)
      allocate (value(0))
      if (.not. find_attr(told_of, step, key, FB_BOOL, 1, field, stat, errmsg)) return
      call c_f_pointer(told_of%values, found, [told_of%count])
      value = found /= 0
   end subroutine

   subroutine attr_get_text_list(step, key, value, field, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: key
      type(fb_label), allocatable, intent(out) :: value(:)
      character(*), intent(in), optional :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_attribute) :: told_of
      type(c_ptr), pointer :: found(:)
      integer :: i
      if (.not. find_attr(told_of, step, key, FB_TEXT, 1, field, stat, errmsg)) then
         allocate (value(0))
         return
      end if
      call c_f_pointer(told_of%values, found, [told_of%count])
      allocate (value(size(found)))
      do i = 1, size(found)
         value(i)%text = fortran_text(found(i))
      end do
   end subroutine

   ! ---- driving a pipeline --------------------------------------------------------------------

   ! The rank, for fb_array, fb_particles, fb_buffer, fb_attr, fb_put, fb_alloc, fb_demanded, fb_producer_lost and the like.
   ! It belongs to the handle: it is not begun, ended or closed.
   function fb_pipeline_producer(pipeline) result(producer)
      type(fb_pipeline), intent(in) :: pipeline
      type(fb_producer) :: producer
      if (c_pipeline_producer(pipeline%handle, producer%handle) /= FB_OK) producer%handle = c_null_ptr
   end function

   ! Begins a step.  `workers` is how many run it; 0 if staging was given up.  Up to 4 steps may be active.  Waits for an
   ! answer of the home server, and for slower ranks, as fb_pipeline_activate in forebay.h says.
   subroutine pipeline_activate_int64(pipeline, step, time, workers, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int64), intent(in) :: step
      real(real64), intent(in), optional :: time
      integer, intent(out), optional :: workers
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t) :: count
      integer(c_int) :: result
      count = 0
      result = c_pipeline_activate(pipeline%handle, step, moment(time), count)
      if (present(workers)) workers = count
      call told(result, stat, errmsg)
   end subroutine

   subroutine pipeline_activate_int32(pipeline, step, time, workers, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int32), intent(in) :: step
      real(real64), intent(in), optional :: time
      integer, intent(out), optional :: workers
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call pipeline_activate_int64(pipeline, int(step, int64), time, workers, stat, errmsg)
   end subroutine

   ! The same without waiting for the pipeline's coordinator: fb_request_wait does.
   subroutine pipeline_activate_async_int64(pipeline, step, time, request, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int64), intent(in) :: step
      real(real64), intent(in), optional :: time
      type(fb_request), intent(out) :: request
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_pipeline_activate_async(pipeline%handle, step, moment(time), request%handle), stat, errmsg)
   end subroutine

   subroutine pipeline_activate_async_int32(pipeline, step, time, request, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int32), intent(in) :: step
      real(real64), intent(in), optional :: time
      type(fb_request), intent(out) :: request
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call pipeline_activate_async_int64(pipeline, int(step, int64), time, request, stat, errmsg)
   end subroutine

   ! Ends the step of this rank, and has the pipeline run on it once all ranks have ended it.  Waits until that is over,
   ! `timeout` seconds at most (default: as it was opened).  `ran` is whether the workers ran.
   subroutine pipeline_execute_int64(pipeline, step, timeout, ran, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int64), intent(in) :: step
      real(real64), intent(in), optional :: timeout
      logical, intent(out), optional :: ran
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: has_run, result
      has_run = 0
      result = c_pipeline_execute(pipeline%handle, step, own_timeout(timeout), has_run)
      if (present(ran)) ran = has_run /= 0
      call told(result, stat, errmsg)
   end subroutine

   subroutine pipeline_execute_int32(pipeline, step, timeout, ran, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int32), intent(in) :: step
      real(real64), intent(in), optional :: timeout
      logical, intent(out), optional :: ran
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call pipeline_execute_int64(pipeline, int(step, int64), timeout, ran, stat, errmsg)
   end subroutine

   ! The same without waiting for the execution: fb_request_wait does.
   subroutine pipeline_execute_async_int64(pipeline, step, request, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int64), intent(in) :: step
      type(fb_request), intent(out) :: request
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_pipeline_execute_async(pipeline%handle, step, request%handle), stat, errmsg)
   end subroutine

   subroutine pipeline_execute_async_int32(pipeline, step, request, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int32), intent(in) :: step
      type(fb_request), intent(out) :: request
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call pipeline_execute_async_int64(pipeline, int(step, int64), request, stat, errmsg)
   end subroutine

   ! Has finished with a step, and ends it if fb_pipeline_execute has not.  Waits for nothing else.
   subroutine pipeline_deactivate_int64(pipeline, step, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int64), intent(in) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_pipeline_deactivate(pipeline%handle, step), stat, errmsg)
   end subroutine

   subroutine pipeline_deactivate_int32(pipeline, step, stat, errmsg)
      type(fb_pipeline), intent(in) :: pipeline
      integer(int32), intent(in) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call pipeline_deactivate_int64(pipeline, int(step, int64), stat, errmsg)
   end subroutine

   ! The steps that this rank has activated and not deactivated, in order; at most 4.  Never waits.
   function fb_pipeline_active(pipeline, stat, errmsg) result(steps)
      type(fb_pipeline), intent(in) :: pipeline
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(int64), allocatable :: steps(:)
      integer(c_int64_t) :: found(4)
      integer(c_int32_t) :: count
      integer(c_int) :: result
      count = 0
      result = c_pipeline_active(pipeline%handle, found, count)
      steps = found(1:count)
      call told(result, stat, errmsg)
   end function

   ! Waits for what was asked for, `timeout` seconds at most (default: as the handle was opened), and tells what the other
   ! call would have.  After FB_TIMEOUT it can be waited for again.
   subroutine fb_request_wait(request, timeout, workers, ran, stat, errmsg)
      type(fb_request), intent(in) :: request
      real(real64), intent(in), optional :: timeout
      integer, intent(out), optional :: workers
      logical, intent(out), optional :: ran
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t) :: count
      integer(c_int) :: has_run, result
      count = 0
      has_run = 0
      result = c_request_wait(request%handle, own_timeout(timeout), count, has_run)
      if (present(workers)) workers = count
      if (present(ran)) ran = has_run /= 0
      call told(result, stat, errmsg)
   end subroutine

   ! Frees a request; what was asked for goes on.
   subroutine fb_request_free(request, stat, errmsg)
      type(fb_request), intent(inout) :: request
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = request%handle
      request%handle = c_null_ptr
      call told(c_request_free(handle), stat, errmsg)
   end subroutine

   ! Ends the stream for this rank, with all steps that are active.
   subroutine fb_pipeline_close(pipeline, stat, errmsg)
      type(fb_pipeline), intent(inout) :: pipeline
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = pipeline%handle
      pipeline%handle = c_null_ptr
      call told(c_pipeline_close(handle), stat, errmsg)
   end subroutine

   ! The same without closing the stream, as fb_producer_abandon does.
   subroutine fb_pipeline_abandon(pipeline, stat, errmsg)
      type(fb_pipeline), intent(inout) :: pipeline
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = pipeline%handle
      pipeline%handle = c_null_ptr
      call told(c_pipeline_abandon(handle), stat, errmsg)
   end subroutine

   ! ---- consumer ------------------------------------------------------------------------------

   ! Waits for the next step; false when the simulation has ended, and after an error.
   logical function fb_consumer_next(consumer, step, timeout, stat, errmsg) result(found)
      type(fb_consumer), intent(in) :: consumer
      type(fb_step), intent(out) :: step
      real(real64), intent(in), optional :: timeout   ! seconds
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      result = c_consumer_next(consumer%handle, own_timeout(timeout), step%handle)
      if (result == FB_OK) result = describe_step(step)
      found = result == FB_OK
      if (result == FB_ENDED) then
         if (present(stat)) stat = FB_ENDED
         return
      end if
      call told(result, stat, errmsg)
   end function

   ! Takes the next step if it is there, and does not wait; false if it is not, when the simulation has ended, which `stat` tells
   ! as FB_ENDED, and after an error.
   logical function fb_consumer_poll(consumer, step, stat, errmsg) result(found)
      type(fb_consumer), intent(in) :: consumer
      type(fb_step), intent(out) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      result = c_consumer_poll(consumer%handle, step%handle)
      found = result == FB_OK .and. c_associated(step%handle)
      if (found) result = describe_step(step)
      if (result == FB_ENDED) then
         if (present(stat)) stat = FB_ENDED
         return
      end if
      call told(result, stat, errmsg)
   end function

   ! Fills in which step it is.
   integer(c_int) function describe_step(step) result(result)
      type(fb_step), intent(inout) :: step
      type(c_step_info) :: info
      info%struct_size = c_sizeof(info)
      result = c_step_info_get(step%handle, info)
      step%run = info%run
      step%number = info%number
      step%time = info%time
      step%missed = info%missed
      step%rewound = info%rewound /= 0
      step%torn = info%torn /= 0
      step%attempt = info%attempt
   end function

   ! The name of one of the fields that the step has, counted from 1; empty past the last one, with FB_NOT_FOUND.
   function fb_step_field_name(step, index, stat, errmsg) result(name)
      type(fb_step), intent(in) :: step
      integer, intent(in) :: index
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: name
      type(c_ptr) :: found
      integer(c_int) :: result
      name = ''
      if (index < 1) then
         call refused('index counts from 1', stat, errmsg)
         return
      end if
      result = c_step_field_name(step%handle, int(index - 1, c_int64_t), found)
      if (result == FB_OK) name = fortran_text(found)
      call told(result, stat, errmsg)
   end function

   ! Tells a field's dtype, global shape, dimensions, spacing, origin, units and association at this step.
   subroutine fb_step_field(step, field, info, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(fb_field_info), intent(out) :: info
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_field_info) :: found
      integer(c_int) :: result
      integer :: d, n
      found%struct_size = c_sizeof(found)
      result = c_step_field(step%handle, c_text(field), found)
      n = 0
      if (result == FB_OK) then
         n = found%ndim
         info%name = fortran_text(found%name)
         info%units = fortran_text(found%units)
         info%dtype = found%dtype
         info%association = found%association
         info%ndim = n
         info%every = found%every
         info%placed = found%placed /= 0
         info%is_static = found%is_static /= 0
      else
         info%name = ''
         info%units = ''
      end if
      info%shape = found%shape(merge(n, 0, info%placed):1:-1)
      info%spacing = found%spacing(merge(n, 0, found%has_spacing /= 0):1:-1)
      info%origin = found%origin(merge(n, 0, found%has_origin /= 0):1:-1)
      info%periodic = found%periodic(n:1:-1) /= 0
      info%refinement = found%refinement(n:1:-1)
      allocate (info%dims(merge(n, 0, found%has_dims /= 0)))
      do d = 1, size(info%dims)
         info%dims(d)%text = fortran_text(found%dims(n + 1 - d))
      end do
      call told(result, stat, errmsg)
   end subroutine

   ! A field's global shape at this step.
   function fb_step_shape(step, field, stat, errmsg) result(shape)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(int64), allocatable :: shape(:)
      type(fb_field_info) :: info
      integer :: result
      call fb_step_field(step, field, info, result)
      shape = info%shape
      if (result /= FB_OK) then
         call told(int(result, c_int), stat, errmsg)
      else if (.not. info%placed) then
         call refused('field '''//trim(field)//''' has no global shape: its blocks have no place in one; see fb_step_block', &
                      stat, errmsg)
      else if (present(stat)) then
         stat = FB_OK
      end if
   end function

   ! Where another reader goes on: the run, and the step after the last one that came.  Before the first step has come it is
   ! the one from which on this reader takes part, or FB_NOT_FOUND if that is not known yet.  Does not wait.
   subroutine fb_consumer_cursor(consumer, run, step, stat, errmsg)
      type(fb_consumer), intent(in) :: consumer
      integer(int64), intent(out) :: run, step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      run = 0
      step = 0
      result = c_consumer_cursor(consumer%handle, run, step)
      call told(result, stat, errmsg)
   end subroutine

   ! Changes what the reader needs, while it is attached: `fields` or `needs` as in fb_consumer_open, by default all fields.
   ! Tells the run and the step from which on that holds, 0 and 0 if the reader waits for a run; steps before it come as they
   ! were needed before.  Waits until the servers have agreed on it.  What the run cannot meet is an error, and the contract
   ! stays what it was.
   subroutine fb_consumer_need(consumer, fields, needs, every, run, step, stat, errmsg)
      type(fb_consumer), intent(in) :: consumer
      character(*), intent(in), optional :: fields(:)
      type(fb_need), intent(in), optional :: needs(:)
      integer, intent(in), optional :: every
      integer(int64), intent(out), optional :: run, step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_need), allocatable, target :: needs_c(:)
      character(name_room, c_char), allocatable, target :: fields_c(:)
      integer(c_int64_t), allocatable, target :: parts(:, :, :)
      integer(c_int64_t) :: from(2)
      integer(c_int32_t) :: period
      integer(c_int) :: result
      from = 0
      if (present(run)) run = 0
      if (present(step)) step = 0
      if (.not. describe_needs(needs_c, fields_c, parts, fields, needs, every, stat, errmsg)) return
      period = 1
      if (present(every)) period = every
      result = c_consumer_need(consumer%handle, needs_c, int(size(needs_c), c_int32_t), period, from(1), from(2))
      if (present(run)) run = from(1)
      if (present(step)) step = from(2)
      call told(result, stat, errmsg)
   end subroutine

   ! What fb_get does, for an array of any type that lies anywhere: `strides` in bytes (without: dense).
   subroutine get_address_int32(step, field, dtype, address, shape, strides, offset, every, holes, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int32), intent(in), optional :: offset(:)
      integer, intent(in), optional :: every(:), holes
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call get(step, field, array, present(strides), given_int32(offset), every, holes, stat, errmsg)
   end subroutine

   subroutine get_address_int64(step, field, dtype, address, shape, strides, offset, every, holes, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: strides(:)
      integer(int64), intent(in) :: offset(:)
      integer, intent(in), optional :: every(:), holes
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array) :: array
      if (.not. placed_at(array, dtype, address, shape, strides, stat, errmsg)) return
      call get(step, field, array, present(strides), given_int64(offset), every, holes, stat, errmsg)
   end subroutine

   ! Tells where a region is filled by what was put: the array of integer(int8) at `address`, dense and of this shape,
   ! gets 1 there and else 0.  Reads no data.
   subroutine fb_covered(step, field, address, shape, offset, every, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: shape(:)
      integer(int32), intent(in), optional :: offset(:)
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(placed_array), target :: array
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 2)
      type(c_selection) :: selection
      if (.not. placed_at(array, FB_BOOL, address, shape, stat=stat, errmsg=errmsg)) return
      field_c = c_text(field)
      selection%field = c_loc(field_c)
      if (.not. select_part(selection, box, array, .false., given_int32(offset), every, stat, errmsg)) return
      call told(c_covered(step%handle, selection), stat, errmsg)
   end subroutine

   subroutine get(step, field, array, strided, offset, every, holes, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      type(numbers), intent(in) :: offset
      integer, intent(in), optional :: every(:), holes
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: box(max_ndim, 2)
      type(c_selection) :: selection
      field_c = c_text(field)
      selection%field = c_loc(field_c)
      if (.not. select_part(selection, box, array, strided, offset, every, stat, errmsg)) return
      if (present(holes)) selection%holes = holes
      call told(c_get(step%handle, selection), stat, errmsg)
   end subroutine

   ! Turns a selection round.  `box` and `array` hold what the selection then points at.
   logical function select_part(selection, box, array, strided, offset, every, stat, errmsg) result(good)
      type(c_selection), intent(inout) :: selection
      integer(c_int64_t), intent(inout), target :: box(max_ndim, 2)
      type(placed_array), intent(in), target :: array
      logical, intent(in) :: strided
      type(numbers), intent(in) :: offset
      integer, intent(in), optional :: every(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      n = array%ndim
      good = .false.
      box(:, 1) = 0
      box(:, 2) = 1
      if (offset%there) then
         if (.not. counts_from_0(offset, n, stat, errmsg)) return
         box(1:n, 1) = offset%of(n:1:-1)
      end if
      if (present(every)) then
         if (.not. fits('every', .true., size(every), n, stat, errmsg)) return
         if (any(every < 1)) then
            call refused('every is at least 1', stat, errmsg)
            return
         end if
         box(1:n, 2) = every(n:1:-1)
      end if
      selection%struct_size = c_sizeof(selection)
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

   ! The statistics of a whole field, if the contract asks for them (`stats` of fb_need): FB_NOT_COVERED otherwise.  Moves no
   ! data.
   subroutine fb_step_stats(step, field, stats, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(fb_stats), intent(out) :: stats
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_stats) :: found
      integer(c_int) :: result
      found%struct_size = c_sizeof(found)
      result = c_step_stats(step%handle, c_text(field), found)
      if (result == FB_OK) then
         stats = fb_stats(min=found%min, max=found%max, sum=found%sum, variance=found%variance, count=found%count, &
                          nan=found%nan)
      end if
      call told(result, stat, errmsg)
   end subroutine

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
      if (index < 1) then
         call refused('index counts from 1', stat, errmsg)
         return
      end if
      found%struct_size = c_sizeof(found)
      result = c_step_block(step%handle, c_text(field), index - 1, found)
      if (result == FB_OK) call show_view(found, view)
      call told(result, stat, errmsg)
   end subroutine

   ! How many blocks of a field are this rank's, of a parallel reader, as `assign` says; of another reader all.
   integer(int64) function fb_step_mine_count(step, field, stat, errmsg) result(count)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      count = 0
      result = c_step_mine_count(step%handle, c_text(field), count)
      call told(result, stat, errmsg)
   end function

   ! Shows one of this rank's blocks, counted from 1.  Otherwise as fb_step_block.
   subroutine fb_step_mine(step, field, index, view, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer(int64), intent(in) :: index
      type(fb_view), intent(out) :: view
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_view) :: found
      integer(c_int) :: result
      if (index < 1) then
         call refused('index counts from 1', stat, errmsg)
         return
      end if
      found%struct_size = c_sizeof(found)
      result = c_step_mine(step%handle, c_text(field), index - 1, found)
      if (result == FB_OK) call show_view(found, view)
      call told(result, stat, errmsg)
   end subroutine

   ! The slab of a field that is this rank's, with assign "slab": where it begins (counted from 0, as everywhere), and how many
   ! elements it has, in each dimension.  FB_INVALID where something else is assigned, or if the field has no global shape.
   subroutine fb_step_mine_region(step, field, offset, shape, stride, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer(int64), allocatable, intent(out) :: offset(:), shape(:)
      integer(int64), allocatable, intent(out), optional :: stride(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t) :: found(8, 3)
      type(c_field_info) :: info
      integer(c_int) :: result
      integer :: n
      info%struct_size = c_sizeof(info)
      result = c_step_field(step%handle, c_text(field), info)
      if (result == FB_OK) then
         n = info%ndim
         result = c_step_mine_region(step%handle, c_text(field), found(:, 1), found(:, 2), found(:, 3))
      end if
      if (result == FB_OK) then
         offset = found(n:1:-1, 1)
         shape = found(n:1:-1, 2)
         if (present(stride)) stride = found(n:1:-1, 3)
      end if
      call told(result, stat, errmsg)
   end subroutine

   subroutine show_view(found, view)
      type(c_view), intent(in) :: found
      type(fb_view), intent(out) :: view
      integer :: n
      n = found%ndim
      view%data = found%data
      view%dtype = found%dtype
      view%rank = found%rank
      view%level = found%level
      view%server = found%server
      view%number = found%number
      view%bytes = found%bytes
      view%placed = found%placed /= 0
      view%offset = found%offset(n:1:-1)
      view%shape = found%shape(n:1:-1)
      view%ghost_low = found%ghost_low(n:1:-1)
      view%ghost_high = found%ghost_high(n:1:-1)
      view%step = found%step(n:1:-1)
      view%stored = view%ghost_low + view%shape + view%ghost_high
      view%has_stats = found%has_stats /= 0
      view%min = found%min
      view%max = found%max
      view%sum = found%sum
      view%count = found%count
      view%nan = found%nan
      view%variance = found%variance
      view%tiles = found%tiles
      view%tile_bounds = found%tile_bounds
   end subroutine

   ! Where a block lies in space, with or without its ghosts, in Fortran's order of dimensions: by the field's spacing, origin
   ! and, above level 0, refinement; FB_INVALID if the producer did not say these.
   subroutine fb_view_bounds(step, field, view, low, high, ghosts, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      type(fb_view), intent(in) :: view
      real(real64), allocatable, intent(out) :: low(:), high(:)
      logical, intent(in), optional :: ghosts
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_view) :: given
      real(c_double) :: found(max_ndim, 2)
      integer(c_int) :: result, with_ghosts
      integer :: n
      with_ghosts = 0
      if (present(ghosts)) with_ghosts = merge(1, 0, ghosts)
      n = size(view%shape)
      given%struct_size = c_sizeof(given)
      given%ndim = n
      given%level = view%level
      given%offset(:n) = view%offset(n:1:-1)
      given%shape(:n) = view%shape(n:1:-1)
      given%step(:n) = view%step(n:1:-1)
      given%ghost_low(:n) = view%ghost_low(n:1:-1)
      given%ghost_high(:n) = view%ghost_high(n:1:-1)
      result = c_view_bounds(step%handle, c_text(field), given, with_ghosts, found(:, 1), found(:, 2))
      if (result == FB_OK) then
         low = found(n:1:-1, 1)
         high = found(n:1:-1, 2)
      end if
      call told(result, stat, errmsg)
   end subroutine

   ! Which part of space a rank of the simulation said that it has, of as many dimensions as `low` has.  FB_NOT_FOUND if it did
   ! not say so, FB_NOT_COVERED if the contract does not name 'rank_bounds'.
   subroutine fb_step_rank_bounds(step, rank, low, high, ghost_low, ghost_high, stat, errmsg)
      type(fb_step), intent(in) :: step
      integer, intent(in) :: rank
      real(real64), intent(out) :: low(:), high(:)
      real(real64), intent(out), optional :: ghost_low(:), ghost_high(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      real(c_double) :: found(size(low), 4)
      integer(c_int) :: result
      logical :: alike
      alike = size(high) == size(low)
      if (present(ghost_low)) alike = alike .and. size(ghost_low) == size(low)
      if (present(ghost_high)) alike = alike .and. size(ghost_high) == size(low)
      if (.not. alike) then
         call refused('low, high and those of ghosts have to have one length', stat, errmsg)
         return
      end if
      result = c_step_rank_bounds(step%handle, int(rank, c_int32_t), size(low, kind=c_int32_t), found(:, 1), found(:, 2), &
                                  found(:, 3), found(:, 4))
      if (result == FB_OK) then
         low = found(:, 1)
         high = found(:, 2)
         if (present(ghost_low)) ghost_low = found(:, 3)
         if (present(ghost_high)) ghost_high = found(:, 4)
      end if
      call told(result, stat, errmsg)
   end subroutine

   ! How many rows a field without a global shape has: elements of its last dimension in all blocks, without ghosts; of a
   ! particle species these are its particles.
   integer(int64) function fb_step_row_count(step, field, stat, errmsg) result(count)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      count = 0
      result = c_step_row_count(step%handle, c_text(field), count)
      call told(result, stat, errmsg)
   end function

   ! Copies rows of it, from the one of number `first` on, counted from 0 over all blocks in the order of ranks and of numbers:
   ! `shape` is that of the dense array of type `dtype` (FB_...) at `address`, as c_loc tells it, whose last extent says how many.
   subroutine fb_get_rows_address(step, field, dtype, address, first, shape, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      integer, intent(in) :: dtype
      type(c_ptr), intent(in) :: address
      integer(int64), intent(in) :: first
      integer(int64), intent(in) :: shape(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: field_c
      integer(c_int64_t), target :: offset(size(shape)), turned_shape(size(shape))
      type(c_selection) :: given
      if (size(shape) < 1 .or. first < 0) then
         call refused('shape is empty, or first is below 0', stat, errmsg)
         return
      end if
      field_c = c_text(field)
      offset = 0
      offset(1) = first
      turned_shape = shape(size(shape):1:-1)
      given%struct_size = c_sizeof(given)
      given%field = c_loc(field_c)
      given%dtype = dtype
      given%ndim = size(shape)
      given%offset = c_loc(offset)
      given%shape = c_loc(turned_shape)
      given%data = address
      call told(c_get_rows(step%handle, given), stat, errmsg)
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

   ! Has not finished with the step, and releases it: readers that share steps are given it once more.
   subroutine fb_step_give_back(step, stat, errmsg)
      type(fb_step), intent(inout) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = step%handle
      step%handle = c_null_ptr
      call told(c_step_give_back(handle), stat, errmsg)
   end subroutine

   ! Detaches a reader that has failed, as if its process had ended: other ranks of a parallel reader are told FB_LOST.
   subroutine fb_consumer_abandon(consumer, stat, errmsg)
      type(fb_consumer), intent(inout) :: consumer
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = consumer%handle
      consumer%handle = c_null_ptr
      call told(c_consumer_abandon(handle), stat, errmsg)
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

   subroutine space_put(space, name, array, step, offset, shape, replace, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      type(placed_array), intent(in), target :: array
      integer(int64), intent(in) :: step
      type(numbers), intent(in) :: offset, shape
      logical, intent(in), optional :: replace
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c
      integer(c_int64_t), target :: box(max_ndim, 4), global(max_ndim)
      type(c_block) :: block
      type(c_field) :: field
      type(numbers) :: from
      integer :: n
      n = array%ndim
      from = offset
      if (.not. offset%there) from = numbers(.true., n, 0)
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
      field%struct_size = c_sizeof(field)
      field%name = c_loc(name_c)
      field%dtype = array%dtype
      field%ndim = n
      field%shape = c_loc(global)
      if (yes(replace) == 1) then
         call told(c_space_replace(space%handle, field, step, block), stat, errmsg)
      else
         call told(c_space_put(space%handle, field, step, block), stat, errmsg)
      end if
   end subroutine

   subroutine space_get(space, name, array, step, offset, every, timeout, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      type(placed_array), intent(in), target :: array
      integer(int64), intent(in) :: step
      type(numbers), intent(in) :: offset
      integer, intent(in), optional :: every(:)
      real(real64), intent(in), optional :: timeout
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c
      integer(c_int64_t), target :: box(max_ndim, 2)
      type(c_selection) :: selection
      name_c = c_text(name)
      selection%field = c_loc(name_c)
      if (.not. select_part(selection, box, array, .true., offset, every, stat, errmsg)) return
      call told(c_space_get(space%handle, step, own_timeout(timeout), selection), stat, errmsg)
   end subroutine

   ! What an expression gives of what is put of the fields of the space at a step, as fb_step_evaluate says; fields are named without a
   ! stream.  Waits until the regions that it names are covered, up to `timeout` seconds (without: as in the options).
   subroutine fb_space_evaluate(space, text, step, value, timeout, stat, errmsg)
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: text
      integer(int64), intent(in) :: step
      type(fb_value), intent(out) :: value
      real(real64), intent(in), optional :: timeout
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_value) :: found
      integer(c_int) :: result
      found%struct_size = c_sizeof(found)
      result = c_space_evaluate(space%handle, step, own_timeout(timeout), c_text(text), found)
      if (result == FB_OK) value = fortran_value(found)
      call told(result, stat, errmsg)
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

   ! What there is in the space, as JSON, as fb_space_list in forebay.h says; empty after an error.
   function fb_space_list(space, stat, errmsg) result(json)
      type(fb_space), intent(in) :: space
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_space_list(space%handle, given)
      json = ''
      if (result == FB_OK) json = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! ---- looking at a stream -------------------------------------------------------------------

   ! Looks at a stream without becoming one of its readers: nothing is demanded of the simulation, and what is held is there since
   ! a reader or the simulation's `keep` holds it.  Finds the group, as fb_admin_open says; the stream need not exist yet.
   subroutine fb_stream_open(stream, name, group, timeout, transport, stat, errmsg)
      type(fb_stream), intent(out) :: stream
      character(*), intent(in) :: name
      character(*), intent(in), optional :: group
      real(real64), intent(in), optional :: timeout
      character(*), intent(in), optional :: transport
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: group_c, transport_c
      type(c_admin_options) :: options
      options%struct_size = c_sizeof(options)
      if (present(group)) then
         group_c = c_text(group); options%group = c_loc(group_c)
      end if
      if (present(timeout)) options%timeout = timeout
      if (present(transport)) then
         transport_c = c_text(transport); options%transport = c_loc(transport_c)
      end if
      call told(c_stream_open(options, c_text(name), stream%handle), stat, errmsg)
   end subroutine

   ! The closed steps that are held now, of all runs, the oldest first, as JSON, as fb_stream_steps in forebay.h says; empty
   ! after an error.
   function fb_stream_steps(stream, stat, errmsg) result(json)
      type(fb_stream), intent(in) :: stream
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_stream_steps(stream%handle, given)
      json = ''
      if (result == FB_OK) json = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! The newest closed step that is held: FB_NOT_FOUND if none is.  It is held until fb_step_release.
   subroutine fb_stream_latest(stream, step, stat, errmsg)
      type(fb_stream), intent(in) :: stream
      type(fb_step), intent(out) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      result = c_stream_latest(stream%handle, step%handle)
      if (result == FB_OK) result = describe_step(step)
      call told(result, stat, errmsg)
   end subroutine

   ! The step of this number, of a run (counted from 1) or of the latest one.  FB_DROPPED if it is held no longer: the message
   ! says which is the next that is.  FB_NOT_FOUND if there was none, or it is not closed yet.
   subroutine fb_stream_at(stream, number, step, run, stat, errmsg)
      type(fb_stream), intent(in) :: stream
      integer(int64), intent(in) :: number
      type(fb_step), intent(out) :: step
      integer(int64), intent(in), optional :: run
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      integer(c_int64_t) :: of_run
      of_run = 0
      if (present(run)) then
         of_run = run
         if (run < 1) of_run = -1
      end if
      if (of_run < 0 .or. number < 0) then
         call refused('runs count from 1, steps from 0', stat, errmsg)
         return
      end if
      result = c_stream_at(stream%handle, of_run, number, step%handle)
      if (result == FB_OK) result = describe_step(step)
      call told(result, stat, errmsg)
   end subroutine

   ! Frees the handle.
   subroutine fb_stream_close(stream, stat, errmsg)
      type(fb_stream), intent(inout) :: stream
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = stream%handle
      stream%handle = c_null_ptr
      call told(c_stream_close(handle), stat, errmsg)
   end subroutine

   ! ---- expressions and subscriptions ---------------------------------------------------------

   ! What an expression gives at a step: a number, a condition, or a place, as docs/expressions.md and fb_step_evaluate in forebay.h
   ! say.  Dimensions without a name stand in C's order there, Fortran's last one first, and count from 0: U[x=0] is safe.
   subroutine fb_step_evaluate(step, text, value, stat, errmsg)
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: text
      type(fb_value), intent(out) :: value
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_value) :: found
      integer(c_int) :: result
      found%struct_size = c_sizeof(found)
      result = c_step_evaluate(step%handle, c_text(text), found)
      if (result == FB_OK) value = fortran_value(found)
      call told(result, stat, errmsg)
   end subroutine

   ! A value as Fortran has it.
   function fortran_value(found) result(value)
      type(c_value), intent(in) :: found
      type(fb_value) :: value
      integer :: n
      n = found%ndim
      value%label = ''
      if (c_associated(found%label)) value%label = fortran_text(found%label)
      value%kind = found%kind
      value%number = found%number
      value%is_integer = found%is_integer /= 0
      value%integer = found%integer
      value%nan = found%nan
      value%has_place = found%has_place /= 0
      allocate (value%index(n))
      value%index(:) = found%index(n:1:-1) + 1
      value%level = found%level
      value%in_block = found%in_block /= 0
      value%rank = found%rank
      value%block = found%block
   end function

   ! Has the servers watch for something, from the next step on, and returns at once, as fb_subscribe in forebay.h says.
   !    name: unique in its stream; by default one that nobody else has
   !    stream: of fields that the text names without one
   !    space: whether the fields are those of the space: each step is watched at the put that completes it
   !    every: at every so many of the steps at which its fields are offered (default 1)
   !    on: FB_ON_...: at which evaluations there are events
   !    limit, expires: it ends after so many events, or seconds; by default never
   !    missing: FB_MISSING_...: what evaluations are that give nothing known
   !    keep: whether it goes on without anybody who listens
   !    keep_before, keep_after: with one of them: keeps the step of each event, so many before it and so many after it
   !    hold: for how many seconds an event holds its step for those who have not taken it (default 30)
   !    begin, after: FB_BEGIN_...: with which event to begin; with FB_BEGIN_AFTER the number of the one before
   !    window: how many events may be held at once (default 4)
   !    group, timeout, transport: as of fb_consumer_open
   subroutine fb_subscribe(subscription, text, name, stream, every, on, limit, expires, missing, keep, keep_before, keep_after, &
      hold, begin, after, window, space, group, timeout, transport, stat, errmsg)
      type(fb_subscription), intent(out) :: subscription
      character(*), intent(in) :: text
      character(*), intent(in), optional :: name, stream, group, transport
      integer, intent(in), optional :: every, on, missing, keep_before, keep_after, hold, begin, window
      integer(int64), intent(in), optional :: limit, after
      real(real64), intent(in), optional :: expires, timeout
      logical, intent(in), optional :: keep, space
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c, stream_c, group_c, transport_c
      type(c_subscription_options) :: options
      options%struct_size = c_sizeof(options)
      if (present(name)) then
         name_c = c_text(name); options%name = c_loc(name_c)
      end if
      if (present(stream)) then
         stream_c = c_text(stream); options%stream = c_loc(stream_c)
      end if
      if (present(group)) then
         group_c = c_text(group); options%group = c_loc(group_c)
      end if
      if (present(transport)) then
         transport_c = c_text(transport); options%transport = c_loc(transport_c)
      end if
      if (present(every)) options%every = every
      if (present(on)) options%on = on
      if (present(limit)) options%limit = limit
      if (present(expires)) options%expires = expires
      if (present(missing)) options%missing = missing
      options%keep = yes(keep)
      options%space = yes(space)
      if (present(keep_before) .or. present(keep_after)) options%keep_around = 1
      if (present(keep_before)) options%keep_before = keep_before
      if (present(keep_after)) options%keep_after = keep_after
      if (present(hold)) options%hold = hold
      if (present(begin)) options%begin = begin
      if (present(after)) options%after = after
      if (present(window)) options%window = window
      if (present(timeout)) options%timeout = timeout
      call told(c_subscribe(options, c_text(text), subscription%handle), stat, errmsg)
   end subroutine

   ! Its name, which was given or made up; empty after an error.
   function fb_subscription_name(subscription, stat, errmsg) result(name)
      type(fb_subscription), intent(in) :: subscription
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: name
      type(c_ptr) :: found
      integer(c_int) :: result
      result = c_subscription_name(subscription%handle, found)
      name = ''
      if (result == FB_OK) name = fortran_text(found)
      call told(result, stat, errmsg)
   end function

   ! Waits until the servers have agreed from which step on it watches: `run` is 0 if there is no run yet.
   subroutine fb_subscription_wait_active(subscription, run, step, stat, errmsg)
      type(fb_subscription), intent(in) :: subscription
      integer(int64), intent(out), optional :: run, step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int64_t) :: of_run, from
      integer(c_int) :: result
      of_run = 0
      from = 0
      result = c_subscription_wait_active(subscription%handle, of_run, from)
      if (present(run)) run = of_run
      if (present(step)) step = from
      call told(result, stat, errmsg)
   end subroutine

   ! The number of the event behind which it goes on: the last one that came.
   subroutine fb_subscription_cursor(subscription, number, stat, errmsg)
      type(fb_subscription), intent(in) :: subscription
      integer(int64), intent(out) :: number
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      number = 0
      call told(c_subscription_cursor(subscription%handle, number), stat, errmsg)
   end subroutine

   ! Pauses, resumes or removes it: FB_CHANGE_...
   subroutine fb_subscription_change(subscription, change, stat, errmsg)
      type(fb_subscription), intent(in) :: subscription
      integer, intent(in) :: change
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_subscription_change(subscription%handle, int(change, c_int)), stat, errmsg)
   end subroutine

   ! Waits for the next event; false when the subscription has ended, which `stat` tells as FB_ENDED, and after an error.  Without a
   ! `timeout` (seconds) it waits as long as it takes.  What is not known is told in between, with FB_TURN_UNKNOWN: look at the turn.
   logical function fb_event_next(subscription, event, timeout, stat, errmsg) result(found)
      type(fb_subscription), intent(in) :: subscription
      type(fb_event), intent(out) :: event
      real(real64), intent(in), optional :: timeout
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      result = c_event_next(subscription%handle, own_timeout(timeout), event%handle)
      if (result == FB_OK) result = describe_event(event)
      found = result == FB_OK
      if (result == FB_ENDED) then
         if (present(stat)) stat = FB_ENDED
         return
      end if
      call told(result, stat, errmsg)
   end function

   ! Fills in what is told of an event.
   integer(c_int) function describe_event(event) result(result)
      type(fb_event), intent(inout) :: event
      type(c_event_info) :: info
      type(c_value) :: found
      integer(c_int64_t) :: i
      info%struct_size = c_sizeof(info)
      result = c_event_info_get(event%handle, info)
      if (result /= FB_OK) return
      event%turn = info%turn
      event%number = info%number
      event%run = info%run
      event%step = info%step
      event%time = info%time
      event%episode = info%episode
      event%first = info%first
      event%missing = info%missing
      event%missed = info%missed
      event%why = ''
      if (c_associated(info%why)) event%why = fortran_text(info%why)
      allocate (event%values(info%values_count))
      do i = 1, size(event%values)
         found%struct_size = c_sizeof(found)
         result = c_event_value(event%handle, i - 1, found)
         if (result /= FB_OK) return
         event%values(i) = fortran_value(found)
      end do
   end function

   ! Takes its step out of an event: it is released with fb_step_release, also after the event.  FB_DROPPED if it is held no
   ! longer, FB_CLOSED if it was taken before.
   subroutine fb_event_step(event, step, stat, errmsg)
      type(fb_event), intent(in) :: event
      type(fb_step), intent(out) :: step
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int) :: result
      result = c_event_step(event%handle, step%handle)
      if (result == FB_OK) result = describe_step(step)
      call told(result, stat, errmsg)
   end subroutine

   ! Frees the handle of an event, and releases its step unless that was taken.
   subroutine fb_event_release(event, stat, errmsg)
      type(fb_event), intent(inout) :: event
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = event%handle
      event%handle = c_null_ptr
      call told(c_event_release(handle), stat, errmsg)
   end subroutine

   ! Listens no more, and frees the handle.  The subscription goes on if it is to be kept, or others listen to it.  Waits until the
   ! server knows with which events this subscriber has finished; no longer than a second.
   subroutine fb_subscription_close(subscription, stat, errmsg)
      type(fb_subscription), intent(inout) :: subscription
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = subscription%handle
      subscription%handle = c_null_ptr
      call told(c_subscription_close(handle), stat, errmsg)
   end subroutine

   ! All subscriptions of a group, as JSON (docs/status.md, SubscriptionStatus); empty after an error.
   function fb_admin_subscriptions(admin, stat, errmsg) result(json)
      type(fb_admin), intent(in) :: admin
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_admin_subscriptions(admin%handle, given)
      json = ''
      if (result == FB_OK) json = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! Pauses, resumes or removes a subscription, whoever has made it: FB_CHANGE_...  `stream` is needed only where several streams
   ! have one of the name.
   subroutine fb_admin_change_subscription(admin, name, change, stream, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      character(*), intent(in) :: name
      integer, intent(in) :: change
      character(*), intent(in), optional :: stream
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable :: stream_c
      if (present(stream)) stream_c = c_text(stream)
      call told(c_admin_change_subscription(admin%handle, c_text(name), stream_c, int(change, c_int)), stat, errmsg)
   end subroutine

   ! ---- administration ------------------------------------------------------------------------

   ! What the servers say of themselves, of streams and of pipelines, as JSON (docs/status.md); empty after an error.
   function fb_admin_status(admin, stat, errmsg) result(json)
      type(fb_admin), intent(in) :: admin
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_admin_status(admin%handle, given)
      json = ''
      if (result == FB_OK) json = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! What a stream's latest run offers, and what of it each reader and pipeline needs, as JSON (docs/status.md); empty after an
   ! error, FB_NOT_FOUND if no server knows the stream.
   function fb_admin_contracts(admin, stream, stat, errmsg) result(json)
      type(fb_admin), intent(in) :: admin
      character(*), intent(in) :: stream
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: json
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_admin_contracts(admin%handle, c_text(stream), given)
      json = ''
      if (result == FB_OK) json = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! Starts `count` more servers on this machine, in the background, and waits until they are members; tells their numbers.
   ! Needs the command forebay: the one that FOREBAY_COMMAND names, that is installed beside the
   ! library, or the first on the path.
   subroutine fb_admin_add_servers(admin, count, servers, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      integer, intent(in) :: count
      integer, allocatable, intent(out), optional :: servers(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t) :: added(max(count, 0))
      integer(c_int) :: result
      added = 0
      result = c_admin_add_servers(admin%handle, int(count, c_int32_t), added)
      if (present(servers)) servers = added
      call told(result, stat, errmsg)
   end subroutine

   ! Has a server leave the group and end; what it holds goes to the others first.  Waits until that is done.  With
   ! `discard` it gives up what no other server can hold.
   subroutine fb_admin_remove_server(admin, server, discard, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      integer, intent(in) :: server
      logical, intent(in), optional :: discard
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_admin_remove_server(admin%handle, int(server, c_int32_t), yes(discard)), stat, errmsg)
   end subroutine

   ! Has the group go on after it lost half of its servers or more at once: tells which answer and which do not; only with
   ! `force` are the latter given up.
   subroutine fb_admin_heal(admin, force, answering, silent, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      logical, intent(in), optional :: force
      integer, allocatable, intent(out), optional :: answering(:), silent(:)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer(c_int32_t), parameter :: room = 4096
      integer(c_int32_t) :: those(room), others(room), those_count, others_count
      integer(c_int) :: result
      those_count = 0
      others_count = 0
      result = c_admin_heal(admin%handle, yes(force), room, those, those_count, others, others_count)
      if (present(answering)) answering = those(1:those_count)
      if (present(silent)) silent = others(1:others_count)
      call told(result, stat, errmsg)
   end subroutine

   ! Gives every server a worker that runs `code`, 'FILE.py:CLASS', and waits until all are ready.  `stream` is by default
   ! the one that the class names, or the only one that the group has; `config` is JSON; `python` the Python to run it with.
   ! With `driven` it runs when ranks say so, through fb_pipeline_open; with `on` at the events of the subscription of that name.
   ! Needs the command forebay.
   subroutine fb_admin_create_pipeline(admin, name, code, stream, config, python, driven, on, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      character(*), intent(in) :: name, code
      character(*), intent(in), optional :: stream, config, python, on
      logical, intent(in), optional :: driven
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:, c_char), allocatable, target :: name_c, code_c, stream_c, config_c, python_c, on_c
      type(c_pipeline_options) :: options
      options%struct_size = c_sizeof(options)
      name_c = c_text(name); options%name = c_loc(name_c)
      code_c = c_text(code); options%code = c_loc(code_c)
      if (present(stream)) then
         stream_c = c_text(stream); options%stream = c_loc(stream_c)
      end if
      if (present(config)) then
         config_c = c_text(config); options%config = c_loc(config_c)
      end if
      if (present(python)) then
         python_c = c_text(python); options%python = c_loc(python_c)
      end if
      if (present(on)) then
         on_c = c_text(on); options%on = c_loc(on_c)
      end if
      options%driven = yes(driven)
      call told(c_admin_create_pipeline(admin%handle, options), stat, errmsg)
   end subroutine

   ! Ends a pipeline and its workers.
   subroutine fb_admin_destroy_pipeline(admin, name, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      character(*), intent(in) :: name
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_admin_destroy_pipeline(admin%handle, c_text(name)), stat, errmsg)
   end subroutine

   ! Ends every server of the group.
   subroutine fb_admin_shutdown(admin, stat, errmsg)
      type(fb_admin), intent(in) :: admin
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      call told(c_admin_shutdown(admin%handle), stat, errmsg)
   end subroutine

   ! Frees the handle.
   subroutine fb_admin_close(admin, stat, errmsg)
      type(fb_admin), intent(inout) :: admin
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      type(c_ptr) :: handle
      handle = admin%handle
      admin%handle = c_null_ptr
      call told(c_admin_close(handle), stat, errmsg)
   end subroutine

   ! ---- general -------------------------------------------------------------------------------

   ! A name that no other job has, for `job`: one rank makes it and tells the others; 32 characters.  Does not wait.
   function fb_new_job_name(stat, errmsg) result(name)
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: name
      type(c_ptr) :: given
      integer(c_int) :: result
      result = c_new_job_name(given)
      name = ''
      if (result == FB_OK) name = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! The text of a group's connection file, once the group is complete, for one rank to hand to all others as their
   ! `group`; empty after an error. It holds the group's secret.
   function fb_group_text(group, stat, errmsg) result(text)
      character(*), intent(in), optional :: group
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      character(:), allocatable :: text
      character(:, c_char), allocatable :: group_c
      type(c_ptr) :: given
      integer(c_int) :: result
      if (present(group)) group_c = c_text(group)
      result = c_group_text(group_c, given)
      text = ''
      if (result == FB_OK) text = owned_text(given)
      call told(result, stat, errmsg)
   end function

   ! A text that the library gave, which is freed.
   function owned_text(given) result(text)
      type(c_ptr), intent(in) :: given
      character(:), allocatable :: text
      text = fortran_text(given)
      call c_free(given)
   end function

   ! A deadline of one call; below 0: the handle's.
   real(c_double) function own_timeout(timeout)
      real(real64), intent(in), optional :: timeout
      own_timeout = -1
      if (present(timeout)) own_timeout = timeout
   end function

   ! A step's time as C takes it: not a number if it has none.
   real(c_double) function moment(time)
      real(real64), intent(in), optional :: time
      moment = ieee_value(0.0_c_double, ieee_quiet_nan)
      if (present(time)) moment = time
   end function

   integer(c_int) function yes(given)
      logical, intent(in), optional :: given
      yes = 0
      if (present(given)) yes = merge(1, 0, given)
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

   ! Whether the same call may succeed later although you have changed nothing.
   logical function fb_result_is_retryable(result)
      integer, intent(in) :: result
      fb_result_is_retryable = c_result_is_retryable(int(result, c_int)) /= 0
   end function

   ! The number of the server that the calling thread's last error is about: one that could not be reached, did not answer in
   ! time or is not there, or that held what is lost.  -1 if it is about no server.
   integer function fb_error_server()
      fb_error_server = int(c_error_server())
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
      ! So that the last error is this one in C, too, which is about no server.
      result = int(c_error_set(int(result, c_int), c_text(text)))
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

   ! Whether `offset` has one number for each dimension, none below 0.
   logical function counts_from_0(offset, n, stat, errmsg) result(good)
      type(numbers), intent(in) :: offset
      integer, intent(in) :: n
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      good = fits('offset', .true., offset%n, n, stat, errmsg)
      if (.not. good) return
      good = all(offset%of(1:n) >= 0)
      if (.not. good) call refused('offset counts from 0: it cannot be negative', stat, errmsg)
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

   ! A contract as C has it: of `fields`, which all have one period, or of `needs`; of neither it is empty.  `names` and `parts` hold
   ! what it then points at.
   logical function describe_needs(contract, names, parts, fields, needs, every, stat, errmsg) result(good)
      type(c_need), allocatable, target, intent(out) :: contract(:)
      character(name_room, c_char), allocatable, target, intent(out) :: names(:)
      integer(c_int64_t), allocatable, target, intent(out) :: parts(:, :, :)
      character(*), intent(in), optional :: fields(:)
      type(fb_need), intent(in), optional :: needs(:)
      integer, intent(in), optional :: every
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: i, n
      good = .false.
      n = 0
      if (present(fields)) n = size(fields)
      if (present(needs)) n = size(needs)
      allocate (contract(n), names(n), parts(max_ndim, 3, n))
      if (present(fields) .and. present(needs)) then
         call refused('fields and needs: give one of them', stat, errmsg, FB_INVALID)
         return
      end if
      if (present(fields)) then
         if (.not. names_fit('fields', fields, stat, errmsg)) return
         do i = 1, n
            names(i) = trim(fields(i))//c_null_char
            contract(i)%struct_size = c_sizeof(contract(i))
            contract(i)%field = c_loc(names(i))
            if (present(every)) contract(i)%every = every
         end do
      else if (present(needs)) then
         do i = 1, n
            if (.not. describe_need(contract(i), names(i), parts(:, :, i), needs(i), stat, errmsg)) return
         end do
      end if
      good = .true.
   end function

   ! Turns a contract's field round.  `name` and `part` hold what the need then points at.
   logical function describe_need(need, name, part, given, stat, errmsg) result(good)
      type(c_need), intent(inout) :: need
      character(name_room, c_char), intent(inout), target :: name
      integer(c_int64_t), intent(inout), target :: part(max_ndim, 3)
      type(fb_need), intent(in) :: given
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
      integer :: n
      good = .false.
      if (.not. names_fit('needs', [given%field], stat, errmsg)) return
      name = trim(given%field)//c_null_char
      need%struct_size = c_sizeof(need)
      need%field = c_loc(name)
      need%dtype = given%dtype
      need%every = given%every
      need%first = given%first
      need%optional = merge(1, 0, given%optional)
      need%stats = given%stats
      n = given%given(2)
      if (n == 0) then
         good = all(given%given == 0)
         if (.not. good) call refused('needs: a part of '//trim(given%field)//' has no shape', stat, errmsg)
         return
      end if
      if (n > max_ndim) then
         call refused('needs: the shape of a part has 1 to 8 entries', stat, errmsg)
         return
      end if
      if (.not. fits('offset', given%given(1) > 0, given%given(1), n, stat, errmsg)) return
      if (.not. fits('stride', given%given(3) > 0, given%given(3), n, stat, errmsg)) return
      part = 0
      part(:, 3) = 1
      part(1:n, 2) = given%part(n:1:-1, 2)
      if (given%given(1) > 0) part(1:n, 1) = given%part(n:1:-1, 1)
      if (given%given(3) > 0) part(1:n, 3) = given%part(n:1:-1, 3)
      need%ndim = n
      need%offset = c_loc(part(1, 1))
      need%shape = c_loc(part(1, 2))
      need%stride = c_loc(part(1, 3))
      good = .true.
   end function

   type(fb_need) function need_int32(field, every, first, optional, dtype, stats, offset, shape, stride) result(need)
      character(*), intent(in) :: field
      integer, intent(in), optional :: every
      integer(int64), intent(in), optional :: first
      logical, intent(in), optional :: optional
      integer, intent(in), optional :: dtype, stats
      integer(int32), intent(in), optional :: offset(:), shape(:), stride(:)
      call take_need(need, field, every, first, optional, dtype, stats)
      if (present(offset)) call take_part(need, 1, int(offset, c_int64_t))
      if (present(shape)) call take_part(need, 2, int(shape, c_int64_t))
      if (present(stride)) call take_part(need, 3, int(stride, c_int64_t))
   end function

   type(fb_need) function need_int64(field, every, first, optional, dtype, stats, offset, shape, stride) result(need)
      character(*), intent(in) :: field
      integer, intent(in), optional :: every
      integer(int64), intent(in), optional :: first
      logical, intent(in), optional :: optional
      integer, intent(in), optional :: dtype, stats
      integer(int64), intent(in), optional :: offset(:)
      integer(int64), intent(in) :: shape(:)
      integer(int64), intent(in), optional :: stride(:)
      call take_need(need, field, every, first, optional, dtype, stats)
      if (present(offset)) call take_part(need, 1, offset)
      call take_part(need, 2, shape)
      if (present(stride)) call take_part(need, 3, stride)
   end function

   subroutine take_need(need, field, every, first, optional, dtype, stats)
      type(fb_need), intent(inout) :: need
      character(*), intent(in) :: field
      integer, intent(in), optional :: every
      integer(int64), intent(in), optional :: first
      logical, intent(in), optional :: optional
      integer, intent(in), optional :: dtype, stats
      need%field = field
      if (present(every)) need%every = every
      if (present(first)) need%first = first
      if (present(optional)) need%optional = optional
      if (present(dtype)) need%dtype = dtype
      if (present(stats)) need%stats = stats
   end subroutine

   ! Numbers of a part: too many for any array are noticed later.
   subroutine take_part(need, which, numbers)
      type(fb_need), intent(inout) :: need
      integer, intent(in) :: which
      integer(c_int64_t), intent(in) :: numbers(:)
      integer :: n
      need%given(which) = size(numbers)
      n = min(size(numbers), 2*max_ndim)
      need%part(1:n, which) = numbers(1:n)
   end subroutine

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

   ! The shape in C's order, and the index of a neighbour of the first element, if there is one.
   subroutine measure(at, first, next, extents)
      type(placed_array), intent(inout) :: at
      integer(int64), intent(in) :: first(4), extents(:)
      integer(int64), intent(out) :: next(4)
      at%shape(1:at%ndim) = extents(at%ndim:1:-1)
      next = first
      next(1:at%ndim) = first(1:at%ndim) + min(extents, 2_int64) - 1
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

   ! Bytes from one element to its neighbour.
   integer(c_int64_t) function apart(first, next)
      type(c_ptr), intent(in) :: first, next
      apart = transfer(next, 0_c_int64_t) - transfer(first, 0_c_int64_t)
   end function

   include 'forebay_arrays.inc'
   include 'forebay_open.inc'

end module
