package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// A field is a JSON value with its path.
type field struct {
	m    *maker
	path string
	data json.RawMessage // nil: not set
}

// root checks that a file is one JSON value.
func root(m *maker, data []byte) (field, error) {
	var raw json.RawMessage
	err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &raw)
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		line, column := place(data, s.Offset)
		return field{}, fmt.Errorf("%s:%d:%d: %w", m.file, line, column, err)
	}
	return field{m, "", raw}, err
}

// place returns the line and column of a byte offset; both start at 1.
func place(data []byte, at int64) (line, column int) {
	before := data[:max(0, min(at-1, int64(len(data))))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// set reports whether the field has a value other than null.
func (f field) set() bool { return len(f.data) > 0 && !bytes.Equal(f.data, []byte("null")) }

// into decodes a value into v. need names the expected JSON type in an error.
func (f field) into(v any, need string) error {
	if !f.set() {
		return nil
	}
	if json.Unmarshal(f.data, v) != nil {
		return f.m.errorf(f.path, "%s is needed, not %s", need, kind(f.data))
	}
	return nil
}

func kind(data []byte) string {
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a bool"
	}
	return "a number"
}

// object returns the fields of an object.
func (f field) object() (object, error) {
	o := object{f: f}
	return o, f.into(&o.fields, "an object")
}

// list returns the items of a list.
func (f field) list() ([]field, error) {
	var all []json.RawMessage
	if err := f.into(&all, "a list"); err != nil {
		return nil, err
	}
	fields := make([]field, len(all))
	for i, data := range all {
		fields[i] = field{f.m, f.path + "[" + strconv.Itoa(i) + "]", data}
	}
	return fields, nil
}

// text returns a string, or "" if the field is not set.
func (f field) text() (s string, err error) { return s, f.into(&s, "a string") }

// texts returns a list of strings.
func (f field) texts() ([]string, error) {
	all, err := f.list()
	var texts []string
	for i := range all {
		if s, e := all[i].text(); err == nil {
			texts, err = append(texts, s), e
		}
	}
	return texts, err
}

// duration returns a duration in protobuf's JSON form, such as "600s".
func (f field) duration() (time.Duration, error) {
	s, err := f.text()
	if err != nil || s == "" {
		return 0, err
	}
	seconds, ok := bytes.CutSuffix([]byte(s), []byte("s"))
	d, err := time.ParseDuration(s)
	if _, number := strconv.ParseFloat(string(seconds), 64); !ok || number != nil || err != nil || d < 0 {
		return 0, f.m.errorf(f.path, "a duration in seconds is needed, such as \"600s\"")
	}
	return d, nil
}

// An object has fields by name. Unknown fields are ignored, as gRPC does.
type object struct {
	f      field
	fields map[string]json.RawMessage
}

func (o object) get(name string) field {
	at := name
	if o.f.path != "" {
		at = o.f.path + "." + name
	}
	return field{o.f.m, at, o.fields[name]}
}

// names returns the keys of an object, sorted.
func (o object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// entry returns the value of a key of a map.
func (o object) entry(key string) field {
	return field{o.f.m, o.f.path + "[" + strconv.Quote(key) + "]", o.fields[key]}
}

// text returns the string of a field.
func (o object) text(name string, into *string) (err error) {
	*into, err = o.get(name).text()
	return err
}
