package disk

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OpenNow opens a file for reading. If the path is a pipe, it does not wait for a writer.
func OpenNow(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|nonblock, 0) }

// OpenNowIn opens a file below a directory as [OpenNow] does.
func OpenNowIn(dir *os.Root, name string) (*os.File, error) {
	return dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
}

// NotRegular returns the error for a path that is not a regular file.
func NotRegular(m fs.FileMode) error {
	kind := "special file"
	switch {
	case m.IsDir():
		kind = "directory"
	case m&fs.ModeSymlink != 0:
		kind = "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		kind = "named pipe"
	case m&fs.ModeSocket != 0:
		kind = "socket"
	case m&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("a %s, not a regular file", kind)
}

// maxSecret is the maximum size of a secret in bytes. A bundle of all public CAs has 250 KB.
const maxSecret = 4 << 20

// ReadSecret returns the content of a file with a token, a password, a key or certificates: at most 4 MiB. See
// [ReadRegular].
func ReadSecret(path string) ([]byte, error) { return ReadRegular(path, maxSecret) }

// ReadRegular returns the content of a regular file of at most limit bytes. It does not wait for a writer of a
// pipe. The error has the path.
func ReadRegular(path string, limit int64) ([]byte, error) {
	f, err := OpenNow(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		err = NotRegular(info.Mode())
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b, err
}
