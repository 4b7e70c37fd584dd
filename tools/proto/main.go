// Proto generates the Go code of the repository's own .proto files. The compiler is protocompile, and
// the plugins are tools of go.mod, so protoc is not needed.
//
// usage: proto DIRECTORY
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are the tools of go.mod that write the code, each to its own files.
var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: proto DIRECTORY")
	}
	all, err := generate(context.Background(), os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the generated files of all .proto files below a directory, by path in the directory.
func generate(ctx context.Context, dir string) (map[string][]byte, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".proto") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	files, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: new("paths=source_relative")}
	taken := map[string]bool{}
	var take func(protoreflect.FileDescriptor)
	take = func(f protoreflect.FileDescriptor) { // imports first
		if taken[f.Path()] {
			return
		}
		taken[f.Path()] = true
		for i := range f.Imports().Len() {
			take(f.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, descriptor(f))
	}
	for _, f := range files {
		take(f)
	}
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, plugin := range plugins {
		if err := run(ctx, plugin, in, all); err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return all, nil
}

// descriptor returns the descriptor of a compiled file with its comments.
func descriptor(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(f)
}

// run runs a plugin, and adds its files.
func run(ctx context.Context, plugin string, in []byte, to map[string][]byte) error {
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.File {
		to[f.GetName()] = []byte(f.GetContent())
	}
	return nil
}
