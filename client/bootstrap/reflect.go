package bootstrap

import (
	"strconv"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type credentialsList = []credentials.PerRPCCredentials

func itoa(i int) string { return strconv.Itoa(i) }

// field returns the path of a field.
func (m located) field(name string) string {
	if m.path == "" {
		return name
	}
	return m.path + "." + name
}

// The functions below read fields of a message by name, so the message may be generated or dynamic. A
// field that is not set has its zero value, and so have the fields below it.

func sub(m protoreflect.Message, name string) protoreflect.Message {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
}

func str(m protoreflect.Message, name string) string {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name))).String()
}

// which returns the name of the field that is set in a oneof; "": none.
func which(m protoreflect.Message, oneof string) protoreflect.Name {
	if fd := m.WhichOneof(m.Descriptor().Oneofs().ByName(protoreflect.Name(oneof))); fd != nil {
		return fd.Name()
	}
	return ""
}

// enum returns the name of the value of an enum field, or its number if it has no name.
func enum(m protoreflect.Message, name string) string {
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	n := m.Get(fd).Enum()
	if v := fd.Enum().Values().ByNumber(n); v != nil {
		return string(v.Name())
	}
	return itoa(int(n))
}

// duration returns a google.protobuf.Duration, limited to the range of time.Duration.
func duration(m protoreflect.Message) time.Duration {
	fields := m.Descriptor().Fields()
	s, n := m.Get(fields.ByName("seconds")).Int(), m.Get(fields.ByName("nanos")).Int()
	const most = int64(1<<63-1) / int64(time.Second)
	if s >= most || s <= -most {
		s, n = max(-most+1, min(s, most-1)), 0
	}
	return time.Duration(s)*time.Second + time.Duration(n)
}
