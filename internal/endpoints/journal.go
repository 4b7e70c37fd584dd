package endpoints

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// A journal is a file with a line for each change: the checksum of the rest, a space, and a record as
// JSON. The last record of a key counts. A long journal is replaced by one with the current values. An
// incomplete last line comes from a write that never returned.
type journal struct {
	path string
	f    *os.File // nil: it was not replaced yet since the start
	size int64    // the size of the known content
	live int64    // the size when it was last replaced
}

// header is the first line. Another number belongs to a version that this one cannot read.
const (
	format = "chancery endpoints "
	header = format + "1\n"
)

// A record is a line of the journal.
type record struct {
	Group   string          `json:"group"`
	Cluster string          `json:"cluster"`
	ID      string          `json:"id,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"` // missing: the key is removed
	Lease   LeaseID         `json:"lease,omitempty"`
}

// ttl is the duration of the lease.
func (r record) ttl() time.Duration {
	var v Value
	if json.Unmarshal(r.Value, &v) != nil || v.TTL <= 0 {
		return MinTTL
	}
	return time.Duration(v.TTL)
}

func openJournal(dir string, log *slog.Logger) (*journal, *disk.Held, map[Key]record, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, nil, err
	}
	lock, err := disk.Lock(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	j := &journal{path: file(dir)}
	all, err := j.read(log)
	if err != nil {
		lock.Unlock()
		return nil, nil, nil, err
	}
	return j, lock, all, nil
}

// maxLine limits the length of a line. The longest value of an engine is one of an etcd, of 1.5 MiB.
const maxLine = 4 << 20

// read returns the content of the file. It skips damaged lines, logs their number, and keeps a copy of
// the file.
func (j *journal) read(log *slog.Logger) (map[Key]record, error) {
	all := map[Key]record{}
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	first, err := nextLine(in, nil)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(first) != header { // an incomplete journal never gets this name
		return all, j.aside(log, first)
	}
	bad, badAt := 0, 0
	var line []byte
	for n := 2; err == nil; n++ {
		line, err = nextLine(in, line)
		if err != nil && len(line) <= maxLine {
			break // the end; an incomplete line was never acknowledged
		}
		r, ok := parse(line)
		if !ok {
			bad++
			if badAt == 0 {
				badAt = n
			}
			continue
		}
		k := Key{Cluster{r.Group, r.Cluster}, r.ID}
		if r.Value == nil {
			delete(all, k)
		} else {
			all[k] = r
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bad > 0 {
		log.Error("damaged lines in the endpoint journal: their registrations are lost", "file", j.path, "lines", bad, "first", badAt, "kept", j.keep())
	}
	return all, nil
}

// nextLine reads a line into b. Of a line longer than maxLine it keeps just enough to exceed the limit.
func nextLine(in *bufio.Reader, b []byte) ([]byte, error) {
	for b = b[:0]; ; {
		part, err := in.ReadSlice('\n')
		if len(b) <= maxLine {
			b = append(b, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b, err
		}
	}
}

// aside renames an unreadable file, so that it is not overwritten, and logs it. The start goes on: the
// rest of the configuration is to be served.
func (j *journal) aside(log *slog.Logger, first []byte) error {
	newer := bytes.HasPrefix(first, []byte(format))
	to := j.damaged()
	if newer {
		to = j.path + ".newer"
	}
	if err := os.Rename(j.path, to); err != nil {
		return err
	}
	if newer {
		log.Error("unreadable endpoint journal, of a newer version or damaged: its registrations are not served", "file", j.path, "kept", to)
	} else {
		log.Error("damaged endpoint journal: its registrations are lost", "file", j.path, "kept", to)
	}
	return nil
}

func (j *journal) damaged() string { return j.path + ".damaged" }

// keep links a file with damaged lines to another name, before a clean journal replaces it. It returns
// that name, or the reason why it failed. It removes an earlier copy.
func (j *journal) keep() string {
	err := os.Remove(j.damaged())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Link(j.path, j.damaged())
	}
	if err != nil {
		return err.Error()
	}
	return j.damaged()
}

// lost returns an error if another file, or none, has the name of the journal: a restart would not read this one.
func (j *journal) lost() error {
	now, err := os.Lstat(j.path)
	if err != nil {
		return err
	}
	is, err := j.f.Stat()
	if err == nil && !os.SameFile(is, now) {
		err = errReplaced
	}
	return err
}

var errReplaced = errors.New("the endpoint journal was replaced by another file")

func parse(line []byte) (r record, ok bool) {
	sum, text, found := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	n, err := strconv.ParseUint(string(sum), 16, 32)
	return r, found && err == nil && crc32.Checksum(text, castagnoli) == uint32(n) && json.Unmarshal(text, &r) == nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendLine appends the line of a change.
func appendLine(b []byte, c Change) ([]byte, error) {
	text, err := json.Marshal(record{c.Group, c.Name, c.ID, c.Value, c.Lease})
	if err != nil {
		return nil, err
	}
	b = fmt.Appendf(b, "%08x ", crc32.Checksum(text, castagnoli))
	return append(append(b, text...), '\n'), nil
}

// append writes changes, and returns when they would survive a loss of power.
func (j *journal) append(changes []Change) error {
	b := make([]byte, 0, 256*len(changes)) // approximately
	var err error
	for _, c := range changes {
		b, err = appendLine(b, c)
		if err != nil {
			return err
		}
	}
	_, err = j.f.WriteAt(b, j.size)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		_ = j.f.Truncate(j.size) // otherwise the next write overwrites it
		return err
	}
	j.size += int64(len(b))
	return nil
}

// long reports whether the journal should be replaced.
func (j *journal) long() bool { return j.size > 4<<20+3*j.live }

// begin writes a new file with these changes beside the journal, and returns its size.
func (j *journal) begin(all []Change) (size int64, err error) {
	if err := os.Remove(j.next()); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a killed program
		return 0, err
	}
	err = disk.Write(j.next(), 0o600, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		n, err := out.WriteString(header)
		size = int64(n)
		var line []byte
		for _, c := range all {
			if err == nil {
				line, err = appendLine(line[:0], c)
			}
			if err == nil {
				n, err = out.Write(line)
				size += int64(n)
			}
		}
		return errors.Join(err, out.Flush())
	})
	if err != nil {
		_ = os.Remove(j.next()) // the disk may be full
	}
	return size, err
}

// adopt replaces the journal by the new file, with the changes made meanwhile, in one atomic step.
func (j *journal) adopt(size int64, since []Change) error {
	f, err := os.OpenFile(j.next(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	n := &journal{path: j.path, f: f, size: size, live: size}
	if len(since) > 0 {
		err = n.append(since)
	}
	if err == nil {
		err = os.Rename(j.next(), j.path)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	if j.f != nil {
		_ = j.f.Close()
	}
	*j = *n // even if SyncDir fails: the old file has lost its name
	return disk.SyncDir(filepath.Dir(j.path))
}

func (j *journal) next() string { return j.path + ".next" }

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
