"""The procedures of `forebay.f90` that must stand there once for every type of arrays, since Fortran has no templates."""

from __future__ import annotations

from collections.abc import Iterator

from faces.fortran import LICENCE, broken
from faces.regions import BANNER

TYPES = (
    ("int32", "integer(int32)", "FB_I32"),
    ("int64", "integer(int64)", "FB_I64"),
    ("real32", "real(real32)", "FB_F32"),
    ("real64", "real(real64)", "FB_F64"),
    ("complex32", "complex(real32)", "FB_C64"),
    ("complex64", "complex(real64)", "FB_C128"),
)

GENERIC = ("put", "put_async", "pipeline_stage", "pipeline_stage_async", "get", "space_put", "space_get")
"""What there is of each type, with an `offset` of 32 bits, and with one of 64."""

_LOCATE = """\
   function locate_{name}(a) result(at)
      {type}, intent(in), target :: a(..)
      type(placed_array) :: at
      integer(int64) :: l(4), n(4)
      at%dtype = {dtype}
      at%ndim = rank(a)
      l = 1
      select rank (a)
      rank (1)
         l(1:1) = lbound(a, kind=int64)
      rank (2)
         l(1:2) = lbound(a, kind=int64)
      rank (3)
         l(1:3) = lbound(a, kind=int64)
      rank (4)
         l = lbound(a, kind=int64)
      end select
      if (rank(a) <= 4) call measure(at, l, n, shape(a, int64))
      if (product(at%shape(1:at%ndim)) == 0) return
      select rank (a)
      rank (0)
         at%data = c_loc(a)
      rank (1)
         call span(at, [c_loc(a(l(1))), c_loc(a(n(1)))])
      rank (2)
         call span(at, [c_loc(a(l(1), l(2))), c_loc(a(n(1), l(2))), c_loc(a(l(1), n(2)))])
      rank (3)
         call span(at, [c_loc(a(l(1), l(2), l(3))), c_loc(a(n(1), l(2), l(3))), c_loc(a(l(1), n(2), l(3))), &
                        c_loc(a(l(1), l(2), n(3)))])
      rank (4)
         call span(at, [c_loc(a(l(1), l(2), l(3), l(4))), c_loc(a(n(1), l(2), l(3), l(4))), &
                        c_loc(a(l(1), n(2), l(3), l(4))), c_loc(a(l(1), l(2), n(3), l(4))), &
                        c_loc(a(l(1), l(2), l(3), n(4)))])
      end select
   end function
"""

_TOLD = """\
      integer, intent(out), optional :: stat
      character(*), intent(inout), optional :: errmsg
"""

_PUT = """\
      type({handle_type}), intent(in) :: {handle}
      character(*), intent(in) :: field
      {type}, intent(in), target :: array(..)
      {offset}
      integer, intent(in), optional :: ghost_low(:), ghost_high(:), number, level
      integer, intent(out), optional :: outcome
{told}\
      if (too_many('fb_{procedure}', rank(array), stat, errmsg)) return
      call put({producer}, field, locate(array), .true., {waits}, {given}(offset), ghost_low, &
               ghost_high, number, level, outcome, stat, errmsg)
"""

_GET = """\
      type(fb_step), intent(in) :: step
      character(*), intent(in) :: field
      {type}, intent(inout), target :: array(..)
      {offset}
      integer, intent(in), optional :: every(:), holes
{told}\
      if (too_many('fb_get', rank(array), stat, errmsg)) return
      call get(step, field, locate(array), .true., {given}(offset), every, holes, stat, errmsg)
"""

_SPACE_PUT = """\
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      {type}, intent(in), target :: array(..)
      integer(int64), intent(in) :: step
      {offset}
      {integer}, intent(in), optional :: shape(:)
      logical, intent(in), optional :: replace
{told}\
      if (space_takes(rank(array), stat, errmsg)) &
         call space_put(space, name, locate(array), step, {given}(offset), {given}(shape), replace, stat, errmsg)
"""

_SPACE_GET = """\
      type(fb_space), intent(in) :: space
      character(*), intent(in) :: name
      {type}, intent(inout), target :: array(..)
      integer(int64), intent(in) :: step
      {offset}
      integer, intent(in), optional :: every(:)
      real(real64), intent(in), optional :: timeout
{told}\
      if (space_takes(rank(array), stat, errmsg)) &
         call space_get(space, name, locate(array), step, {given}(offset), every, timeout, stat, errmsg)
"""

_PLACED = "field, array, offset, ghost_low, ghost_high, number, level, outcome, stat, errmsg"
_ARGUMENTS = {
    "put": f"producer, {_PLACED}",
    "put_async": f"producer, {_PLACED}",
    "pipeline_stage": f"pipeline, {_PLACED}",
    "pipeline_stage_async": f"pipeline, {_PLACED}",
    "get": "step, field, array, offset, every, holes, stat, errmsg",
    "space_put": "space, name, array, step, offset, shape, replace, stat, errmsg",
    "space_get": "space, name, array, step, offset, every, timeout, stat, errmsg",
}
_BODIES = {"get": _GET, "space_put": _SPACE_PUT, "space_get": _SPACE_GET}


def interface(generic: str, indent: str) -> list[str]:
    """The procedures of one generic name."""
    names = [f"{generic}_{name}{far}" for far in ("", "_far") for name, _, _ in TYPES]
    return broken(f"{indent}module procedure {', '.join(names)}")


def procedures() -> str:
    """`forebay_arrays.inc`."""
    lines = ["   ! Part of forebay.f90: one of each for every type, since Fortran has no templates.", "   !"]
    lines += [f"   ! {LICENCE}", "   !", f"   ! {BANNER.capitalize()}.", "   !"]
    lines += [
        "   ! The strides of an array are the distances from its first element to its neighbours, so that sections",
        "   ! and dummy arguments are read where they lie.",
        "   !",
        "   ! The first element is found by lbound, although a dummy argument's is 1: gfortran 12 lets what it copies for",
        "   ! the call, an expression or a component, begin at 0.",
        "   !",
        "   ! Those that end in _far take an `offset` of 64 bits. There it must be present, since by it the compiler tells",
        "   ! them from the others.",
        "",
    ]
    made = [_LOCATE.format(name=name, type=kind, dtype=dtype) for name, kind, dtype in TYPES]
    made += [text for generic in GENERIC for text in _of(generic)]
    return "\n".join(lines) + "\n".join(made)


def _of(generic: str) -> Iterator[str]:
    for integer, far in (("int32", ""), ("int64", "_far")):
        for name, kind, _ in TYPES:
            offset = f"integer({integer}), intent(in){', optional' if far == '' else ''} :: offset(:)"
            head = "\n".join(broken(f"   subroutine {generic}_{name}{far}({_ARGUMENTS[generic]})"))
            is_staged = generic.startswith("pipeline")
            body = _BODIES.get(generic, _PUT).format(
                type=kind,
                offset=offset,
                integer=f"integer({integer})",
                given=f"given_{integer}",
                procedure=generic,
                handle="pipeline" if is_staged else "producer",
                handle_type="fb_pipeline" if is_staged else "fb_producer",
                producer="fb_pipeline_producer(pipeline)" if is_staged else "producer",
                waits=".false." if generic.endswith("async") else ".true.",
                told=_TOLD,
            )
            yield f"{head}\n{body}   end subroutine\n"
