# Writes cfg_embedded.c: every config file as one row { kind, name, text } of a C array, in the order of FILES (sorted).
# Bytes are written as hex escapes: no quoting rules, and any UTF-8 comes through.
set(rows "")
set(n 0)
foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "\\.yaml$" "" name "${name}")
    get_filename_component(folder ${file} DIRECTORY)
    get_filename_component(kind ${folder} NAME)
    if(name STREQUAL "LICENSE")     # the text that is always at hand: `run` trains on it unless --data names a file
        set(kind "texts")
    endif()
    file(READ ${file} text HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${text}")
    string(APPEND rows "    { \"${kind}\", \"${name}\",\n      \"${text}\" },\n")
    math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT}.new "#include \"models/cfg.h\"\nconst struct cfg_file cfg_embedded[] = {\n${rows}"
     "    { 0, 0, 0 },\n};\nconst int cfg_embedded_n = ${n};\n")
file(RENAME ${OUT}.new ${OUT})
