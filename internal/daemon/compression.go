package daemon

import (
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
)

// A refusedCompression is a compression that requests must not use: 30 KB of compressed data could
// become 31 MiB before a limit counts them. gRPC itself refuses unknown compressions, but does not
// log that.
type refusedCompression string

var errCompressed = errors.New("compressed requests are not supported")

func init() { // gRPC registers compressors globally
	for _, name := range []refusedCompression{"gzip", "deflate", "snappy", "zstd", "br"} {
		encoding.RegisterCompressor(name)
	}
}

// Name implements [encoding.Compressor].
func (r refusedCompression) Name() string { return string(r) }

// Compress implements [encoding.Compressor].
func (refusedCompression) Compress(io.Writer) (io.WriteCloser, error) { return nil, errCompressed }

// Decompress implements [encoding.Compressor].
func (refusedCompression) Decompress(io.Reader) (io.Reader, error) { return nil, errCompressed }
