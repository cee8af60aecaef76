foreach(row IN LISTS ROWS)
  set(DEP_URL_${name} ${url})
endforeach()
fetch(alpha URL ${DEP_URL_alpha})
