package configtest

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// leaves lists what a value is made of: each path from its root to a value that is not zero, unexported fields included.
func leaves(v any) map[string]string {
	w := walker{leaves: map[string]string{}, seen: map[pointer]string{}}
	w.walk("", reflect.ValueOf(v))
	return w.leaves
}

type walker struct {
	leaves map[string]string
	seen   map[pointer]string // to the first path that leads there
}

type pointer struct {
	to uintptr
	of reflect.Type
}

var (
	duration = reflect.TypeFor[time.Duration]()
	location = reflect.TypeFor[*time.Location]()
	prefixes = reflect.TypeFor[[]netip.Prefix]()
)

func (w *walker) walk(path string, v reflect.Value) {
	switch {
	case !v.IsValid() || v.IsZero():
		return
	case v.Type() == duration:
		w.leaves[path] = time.Duration(v.Int()).String()
		return
	case v.Type() == location:
		w.leaves[path] = (*time.Location)(v.UnsafePointer()).String()
		return
	case v.Type() == prefixes && v.CanInterface():
		w.leaves[path] = fmt.Sprint(v.Interface())
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := pointer{v.Pointer(), v.Type()}
		if first, ok := w.seen[p]; ok {
			w.leaves[path] = "as " + first
			return
		}
		w.seen[p] = path
		w.walk(path, v.Elem())
	case reflect.Interface:
		w.leaves[path] = v.Elem().Type().String()
		w.walk(path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			w.walk(join(path, v.Type().Field(i).Name), v.Field(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, key := range keys {
			w.walk(fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key))
		}
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.Uint8:
			w.leaves[path] = fmt.Sprintf("%q", v)
		case reflect.String:
			w.leaves[path] = fmt.Sprintf("%q", v)
		default:
			for i := range v.Len() {
				w.walk(path+"["+strconv.Itoa(i)+"]", v.Index(i))
			}
		}
	case reflect.Chan:
		w.leaves[path] = fmt.Sprintf("chan of %d", v.Cap())
	case reflect.Func, reflect.UnsafePointer:
		w.leaves[path] = v.Kind().String()
	case reflect.String:
		w.leaves[path] = strconv.Quote(v.String())
	default:
		w.leaves[path] = fmt.Sprint(v)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
