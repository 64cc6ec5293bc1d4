# Writes ${OUT}: files of ${SOURCE} as text inside the program, so that the binary runs anywhere. ${PATTERNS}: which,
# separated by '|'. The file defines ${FUNCTION} of ${HEADER}, a list of ${TYPE}: name and text. ${STRIP}: what a name
# does not end with.
string(REPLACE "|" ";" patterns "${PATTERNS}")
list(TRANSFORM patterns PREPEND ${SOURCE}/)
file(GLOB_RECURSE files RELATIVE ${SOURCE} ${patterns})
list(SORT files)
set(text "#include \"${HEADER}\"\n\nnamespace samara {\n\nconst std::vector<${TYPE}>& ${FUNCTION}() {\n  static const std::vector<${TYPE}> texts = {\n")
foreach(file ${files})
  file(READ ${SOURCE}/${file} body)
  string(REGEX REPLACE "${STRIP}$" "" name ${file})
  string(APPEND text "      {\"${name}\", R\"text(${body})text\"},\n")
endforeach()
string(APPEND text "  };\n  return texts;\n}\n\n}  // namespace samara\n")
file(WRITE ${OUT} "${text}")
