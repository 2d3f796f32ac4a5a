# Forebay for CMake: find_package(forebay [VERSION] [COMPONENTS C CXX Fortran MPI])
#
# SPDX-License-Identifier: Apache-2.0
#
#   forebay::forebay   the library and its C header
#   forebay::cxx       the same with forebay.hpp, which asks for C++17
#   forebay::fortran   the module `forebay`, compiled in your build by your compiler (component Fortran)
#   forebay::mpi       the same as forebay::forebay with MPI, for forebay_mpi.h (component MPI)
#   forebay::static    libforebay.a, where it is installed
#
# Everything lies relative to this file, so that the tree may be moved.

get_filename_component(_forebay_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(_forebay_library "${_forebay_prefix}/lib/libforebay.so.0")
set(_forebay_include "${_forebay_prefix}/include")
foreach(_forebay_needed "${_forebay_library}" "${_forebay_include}/forebay.h")
  if(NOT EXISTS "${_forebay_needed}")
    set(forebay_FOUND FALSE)
    set(forebay_NOT_FOUND_MESSAGE "${_forebay_needed} is missing: the installation of Forebay is not whole")
    return()
  endif()
endforeach()

if(NOT TARGET forebay::forebay)
  add_library(forebay::forebay SHARED IMPORTED)
  set_target_properties(forebay::forebay PROPERTIES
    IMPORTED_LOCATION "${_forebay_library}"
    IMPORTED_SONAME "libforebay.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_forebay_include}")

  add_library(forebay::cxx INTERFACE IMPORTED)
  set_target_properties(forebay::cxx PROPERTIES
    INTERFACE_LINK_LIBRARIES forebay::forebay
    INTERFACE_COMPILE_FEATURES cxx_std_17)

  if(EXISTS "${_forebay_prefix}/lib/libforebay.a")
    add_library(forebay::static STATIC IMPORTED)
    set_target_properties(forebay::static PROPERTIES
      IMPORTED_LOCATION "${_forebay_prefix}/lib/libforebay.a"
      INTERFACE_INCLUDE_DIRECTORIES "${_forebay_include}"
      INTERFACE_LINK_LIBRARIES "pthread;dl;m")
  endif()
endif()

set(forebay_FOUND TRUE)
foreach(_forebay_component IN LISTS forebay_FIND_COMPONENTS)
  if(_forebay_component STREQUAL "C" OR _forebay_component STREQUAL "CXX")
    set(forebay_${_forebay_component}_FOUND TRUE)
  elseif(_forebay_component STREQUAL "Fortran")
    get_property(_forebay_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if(NOT "Fortran" IN_LIST _forebay_languages)
      set(forebay_Fortran_FOUND FALSE)
      set(forebay_NOT_FOUND_MESSAGE "component Fortran: enable the language first, as in project(... Fortran)")
    else()
      set(forebay_Fortran_FOUND TRUE)
      if(NOT TARGET forebay::fortran)
        # Module files belong to one compiler, so that the source is what is installed.
        add_library(forebay_fortran STATIC EXCLUDE_FROM_ALL "${_forebay_include}/forebay/forebay.f90")
        set_target_properties(forebay_fortran PROPERTIES
          POSITION_INDEPENDENT_CODE ON
          Fortran_MODULE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/forebay_fortran")
        target_include_directories(forebay_fortran
          PRIVATE "${_forebay_include}/forebay"
          INTERFACE "${CMAKE_CURRENT_BINARY_DIR}/forebay_fortran")
        target_link_libraries(forebay_fortran PUBLIC forebay::forebay)
        add_library(forebay::fortran ALIAS forebay_fortran)
      endif()
    endif()
  elseif(_forebay_component STREQUAL "MPI")
    include(CMakeFindDependencyMacro)
    find_dependency(MPI COMPONENTS C)
    set(forebay_MPI_FOUND ${MPI_C_FOUND})
    if(MPI_C_FOUND AND NOT TARGET forebay::mpi)
      add_library(forebay::mpi INTERFACE IMPORTED)
      set_target_properties(forebay::mpi PROPERTIES INTERFACE_LINK_LIBRARIES "forebay::forebay;MPI::MPI_C")
    endif()
  else()
    set(forebay_${_forebay_component}_FOUND FALSE)
    set(forebay_NOT_FOUND_MESSAGE
      "there is no component ${_forebay_component}: C, CXX, Fortran and MPI there are")
  endif()
  if(forebay_FIND_REQUIRED_${_forebay_component} AND NOT forebay_${_forebay_component}_FOUND)
    set(forebay_FOUND FALSE)
  endif()
endforeach()

unset(_forebay_prefix)
unset(_forebay_library)
unset(_forebay_include)
