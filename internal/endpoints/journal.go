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

// A journal is a file with a line for each change: the checksum of what follows, a space, and a record as JSON.
// The newest of a key counts. When it is long, it is replaced by one with what there is. A line that is cut
// off at the end is of a write that nobody was told to be done.
type journal struct {
	path string
	f    *os.File
	size int64 // of what is known to be there
	live int64 // what there was when it was replaced last
}

// header is the first line. Another number is of a version that this one cannot read.
const (
	format = "chancery endpoints "
	header = format + "1\n"
)

// A record is a line.
type record struct {
	Group   string          `json:"group"`
	Cluster string          `json:"cluster"`
	ID      string          `json:"id,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"` // none: the key goes
	Lease   LeaseID         `json:"lease,omitempty"`
}

// ttl is that of the lease.
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

// maxLine is how long a line is that is read. The longest value that an engine tells is one of an etcd, of 1.5 MiB.
const maxLine = 4 << 20

// read returns what the file says. What is damaged is left out, told, and kept beside it.
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
	if string(first) != header { // a journal is never there without it
		return all, j.aside(log, first)
	}
	bad, badAt := 0, 0
	var line []byte
	for n := 2; err == nil; n++ {
		if line, err = nextLine(in, line); err != nil && len(line) <= maxLine {
			break // the end; what is cut off was never done
		}
		r, ok := parse(line)
		if !ok {
			if bad++; badAt == 0 {
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
		log.Error("lines of the journal of endpoints are damaged: what they said is lost", "file", j.path, "lines", bad, "first", badAt, "kept", j.keep())
	}
	return all, nil
}

// nextLine reads a line into b, and of one that is too long as much as says so.
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

// aside gives a file that cannot be read another name, so that nothing is written over it, and tells. What is served besides
// endpoints is not to wait for that.
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
		log.Error("the journal of endpoints is of a newer version of Chancery, or damaged: what it says is not served", "file", j.path, "kept", to)
	} else {
		log.Error("the journal of endpoints is damaged: what it said is lost", "file", j.path, "kept", to)
	}
	return nil
}

func (j *journal) damaged() string { return j.path + ".damaged" }

// keep has a file with damaged lines have another name, too, before it is replaced by one without them, and returns it; or
// why it has not. One that was kept before goes.
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

// append writes changes, and returns when they would outlast a loss of power.
func (j *journal) append(changes []Change) error {
	b := make([]byte, 0, 256*len(changes)) // more or less
	var err error
	for _, c := range changes {
		if b, err = appendLine(b, c); err != nil {
			return err
		}
	}
	if _, err = j.f.WriteAt(b, j.size); err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		_ = j.f.Truncate(j.size) // else the next one is written over it
		return err
	}
	j.size += int64(len(b))
	return nil
}

// long reports whether it is time to replace it.
func (j *journal) long() bool { return j.size > 4<<20+3*j.live }

// begin writes a file that has these changes, and returns its size. It is beside the journal, which stays.
func (j *journal) begin(all []Change) (size int64, err error) {
	if err := os.Remove(j.next()); err != nil && !errors.Is(err, fs.ErrNotExist) { // one that a killed program left
		return 0, err
	}
	return size, disk.Write(j.next(), 0o600, func(w io.Writer) error {
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
}

// adopt puts the file that was begun in the place of the journal, with changes that came meanwhile: as a whole or
// not at all.
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
	*j = *n // whatever comes now: the other one has no name any more
	return disk.SyncDir(filepath.Dir(j.path))
}

func (j *journal) next() string { return j.path + ".next" }

func (j *journal) close() error { return j.f.Close() }
