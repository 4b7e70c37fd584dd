package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptors returns the descriptors in the generated code below a directory.
func descriptors(root string) (files []*descriptorpb.FileDescriptorProto, err error) {
	all := os.DirFS(root)
	err = fs.WalkDir(all, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata" || d.Name() == "testing"):
			return fs.SkipDir // the tests of protobuf
		case d.IsDir() || !strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		src, err := fs.ReadFile(all, path)
		if err != nil || !bytes.Contains(src, []byte("_rawDesc ")) {
			return err // code of another generator: gRPC, vtprotobuf, validation
		}
		f, err := descriptor(src)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", root, path, err)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// descriptor returns the descriptor in a file of generated code. It is a constant, or a slice of
// bytes from an older protoc-gen-go.
func descriptor(src []byte) (*descriptorpb.FileDescriptorProto, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range tree.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			s, ok := spec.(*ast.ValueSpec)
			if !ok || len(s.Values) != 1 || !strings.HasSuffix(s.Names[0].Name, "_rawDesc") {
				continue
			}
			raw, err := value(s.Values[0])
			if err != nil {
				return nil, err
			}
			f := &descriptorpb.FileDescriptorProto{}
			// Do not decode options, so that the result does not depend on the types in this program.
			err = proto.UnmarshalOptions{Resolver: (*protoregistry.Types)(nil)}.Unmarshal([]byte(raw), f)
			return f, err
		}
	}
	return nil, errors.New("no readable descriptor: the form of generated code may have changed")
}

// value returns the value of an expression such as "a" + "b" + "c" or []byte{1, 2, 3}, with or without a conversion.
func value(e ast.Expr) (string, error) {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	if list, ok := e.(*ast.CompositeLit); ok {
		return bytesOf(list)
	}
	var parts []string
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok {
			break
		}
		part, err := literal(b.Y)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
		e = b.X
	}
	first, err := literal(e)
	parts = append(parts, first)
	slices.Reverse(parts)
	return strings.Join(parts, ""), err
}

func bytesOf(list *ast.CompositeLit) (string, error) {
	out := make([]byte, len(list.Elts))
	for i, e := range list.Elts {
		l, ok := e.(*ast.BasicLit)
		if !ok {
			return "", fmt.Errorf("got %T, want a byte", e)
		}
		b, err := strconv.ParseUint(l.Value, 0, 8)
		if err != nil {
			return "", err
		}
		out[i] = byte(b)
	}
	return string(out), nil
}

func literal(e ast.Expr) (string, error) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", fmt.Errorf("got %T, want a string", e)
	}
	return strconv.Unquote(l.Value)
}
