package daemon

import (
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
)

// refusing is a compression that no request may have: 30 KB could become 31 MiB before
// anybody counts these. What gRPC does not know it refuses by itself, and nobody is told.
type refusedCompression string

var errCompressed = errors.New("compressed requests are not supported")

func init() { // as gRPC wants it
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
