# Trained networks as libraries of a CMake project.
#
#   find_package(nnefc REQUIRED)            # cmake -Dnnefc_DIR=$(nnefc --cmakedir)
#   nnefc_add_network(digits models/digits.nnef)
#   target_link_libraries(program PRIVATE digits)
#
# nnefc_add_network(NAME MODEL [SHARED] [TARGET target] [OPTIONS option...])
#
#   NAME     the library of CMake's; a static one is used by #include "NAME.h", which declares NAME_create, NAME_run, …
#   MODEL    a file or folder, relative to the current source folder; the network is compiled again when it changes
#   SHARED   a shared library with the functions of nnefc.h, of which a program can be linked against one
#   TARGET   as of nnefc compile --target; needed where CMake compiles for another machine, else this machine is meant
#   OPTIONS  further ones of nnefc compile, such as --shape batch=1..64
#
# The library's path is the property IMPORTED_LOCATION of NAME. nnefc_INCLUDE_DIR has nnefc.h, nnefc.hpp and nnefc_image.hpp.

cmake_policy(PUSH)
cmake_policy(VERSION 3.15...3.31)

get_filename_component(nnefc_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../runtime" ABSOLUTE)
find_program(NNEFC_COMMAND nnefc HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../../../../bin"
             "${CMAKE_CURRENT_LIST_DIR}/../../../../../Scripts" DOC "The command nnefc")
if(NOT NNEFC_COMMAND)
  set(nnefc_FOUND FALSE)
  set(nnefc_NOT_FOUND_MESSAGE "the command nnefc is not there: add its folder to PATH, or set NNEFC_COMMAND")
  cmake_policy(POP)
  return()
endif()

find_package(Threads QUIET)

function(nnefc_add_network NAME MODEL)
  cmake_parse_arguments(PARSE_ARGV 2 NETWORK "SHARED" "TARGET" "OPTIONS")
  if(NETWORK_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nnefc_add_network(${NAME}): unknown arguments ${NETWORK_UNPARSED_ARGUMENTS}; "
                        "options of nnefc compile come after OPTIONS")
  endif()
  if(NOT NAME MATCHES "^[A-Za-z][A-Za-z0-9_]*$")
    message(FATAL_ERROR "nnefc_add_network(${NAME}): the name begins the names of functions in C, so it must be one itself")
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT NETWORK_TARGET)
    message(FATAL_ERROR "nnefc_add_network(${NAME}): say TARGET, for the program is for another machine "
                        "(nnefc targets lists them)")
  endif()
  get_filename_component(model "${MODEL}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT EXISTS "${model}")
    message(FATAL_ERROR "nnefc_add_network(${NAME}): there is no model ${model}")
  endif()
  set(files "${model}")
  if(IS_DIRECTORY "${model}")
    file(GLOB_RECURSE files CONFIGURE_DEPENDS "${model}/*")
  endif()

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${NAME}")
  file(MAKE_DIRECTORY "${folder}")
  if(NETWORK_SHARED)
    set(kind SHARED)
    set(library "${folder}/${CMAKE_SHARED_LIBRARY_PREFIX}${NAME}${CMAKE_SHARED_LIBRARY_SUFFIX}")
    set(made "${library}")
  else()
    set(kind STATIC)
    set(library "${folder}/lib${NAME}.a")
    set(made "${library}" "${folder}/${NAME}.h")
  endif()
  set(target "")
  if(NETWORK_TARGET)
    set(target --target "${NETWORK_TARGET}")
  endif()
  add_custom_command(
    OUTPUT ${made}
    COMMAND "${NNEFC_COMMAND}" compile "${model}" --name "${NAME}" ${target} ${NETWORK_OPTIONS} -o "${library}"
    DEPENDS ${files}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Compiling the network ${NAME}"
    VERBATIM)
  add_custom_target(${NAME}_library DEPENDS ${made})
  add_library(${NAME} ${kind} IMPORTED GLOBAL)
  add_dependencies(${NAME} ${NAME}_library)
  set_target_properties(${NAME} PROPERTIES IMPORTED_LOCATION "${library}")
  target_include_directories(${NAME} INTERFACE "${folder}" "${nnefc_INCLUDE_DIR}")
  if(NETWORK_SHARED)
    set_target_properties(${NAME} PROPERTIES IMPORTED_NO_SONAME TRUE)
  else()
    if(UNIX)
      target_link_libraries(${NAME} INTERFACE m)
    endif()
    if(Threads_FOUND)
      target_link_libraries(${NAME} INTERFACE Threads::Threads)
    endif()
  endif()
endfunction()

cmake_policy(POP)
