package bootstrap

import (
	"bytes"
	"encoding/json"
)

// An object is a JSON object that keeps the order of its fields, for readability.
type object []field

type field struct {
	name  string
	value any
}

type list []any

// MarshalJSON implements [json.Marshaler]. It omits fields without a value.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, f := range o {
		if f.value == nil || f.value == "" {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := encode(f.name, "")
		if err != nil {
			return nil, err
		}
		value, err := encode(f.value, "")
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}
