# Writes HEADER with the commit of SOURCE_DIR, "-dirty" behind it if tracked files differ; leaves it alone when
# nothing changed, so that nothing is compiled anew.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define REDLITE_COMMIT \"${commit}\"\n")
