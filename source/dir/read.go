package dir

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A file is the result of the last read of a file.
type file struct {
	watch.Stamp
	settled bool // an equal stamp means that the content did not change
	sum     [sha256.Size]byte
	emptied bool
	loaded  []Loaded

	definition *definition // of a group file; nil: it is another file, or invalid
	groupName  string      // of an invalid group file; "": unknown

	bootstrap    proto.Message // of a bootstrap; nil: it is another file, or invalid
	secretsRound int           // of the source when the file was decoded
	maxProgram   int           // the limit of Envoy for the size of a regular expression when the file was decoded

	errs, warnings []findings.Problem

	omittedErrors, omittedWarnings int // numbers of errors and warnings beyond Options.MaxProblems that were not kept
}

// rereads is how often files are read again if they changed during the read, for example because a
// symbolic link was moved to a new version of the directory. A mixture of two versions must not be
// served.
const rereads = 5

// read returns the decoded files, by path. It reuses results in before and of the last load. It reads
// several files at a time, because decoding is most of the work.
func (s *Source) read(order []found, before map[string]*file, force bool) map[string]*file {
	files := make([]*file, len(order))
	each(len(order), func(i int) {
		path := order[i].path
		files[i] = s.readSafely(order[i], cmp.Or(before[path], s.files[path]), force)
	})
	byPath := make(map[string]*file, len(order))
	for i, f := range order {
		byPath[f.path] = files[i]
	}
	return byPath
}

// each calls f for 0 to n-1, several at a time.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// had reports whether a file had any content.
func had(old *file) bool {
	return old != nil && (old.emptied || len(old.loaded) > 0 || old.definition != nil && len(old.definition.raw) > 0)
}

// defines reports whether a path is a group file that has content in the served configuration.
func (s *Source) defines(path string) bool {
	d := s.layout.dirs[filepath.Dir(path)]
	return isGroupFile(path) && d != nil && len(d.raw) > 0
}

// readFile reads a file, and returns old, which may be nil, if the content did not change.
func (s *Source) readFile(f found, old *file, force bool) *file {
	// A validator knows the secrets and limits of bootstraps.
	limit := s.bootstraps.maxProgram(f.path)
	decoded := old != nil && (old.secretsRound == s.secretsRound && old.maxProgram == limit || s.validator == nil || isGroupFile(f.path) || isBootstrapFile(f.path))
	if decoded && old.settled && old.Stamp == f.Stamp && !force {
		return old
	}
	at := time.Now()
	data, stamp, err := watch.Read(f.path, s.opts.MaxFile)
	if err == nil && len(data) == 0 && (had(old) || s.defines(f.path)) {
		err = errors.New("has become empty, which may be an unfinished write: delete the file, or leave a comment in it")
	}
	if err != nil {
		now := &file{emptied: had(old), errs: []findings.Problem{s.unread(f.path, err)}}
		if old != nil && old.emptied == now.emptied && slices.Equal(old.errs, now.errs) {
			return old // it fails with the same error as before
		}
		return now
	}
	// Clocks of file systems tick slowly: a file that was written just before the read
	// may change again without a change of its stamp.
	settled := at.Sub(stamp.Modified()) > 2*time.Second
	sum := sha256.Sum256(data)
	if decoded && old.sum == sum {
		old.Stamp, old.settled = stamp, settled
		return old
	}
	now := &file{Stamp: stamp, settled: settled, sum: sum, secretsRound: s.secretsRound, maxProgram: limit}
	s.fill(now, f.path, data)
	return now
}

// fill decodes the content of a file.
func (s *Source) fill(now *file, path string, data []byte) {
	switch {
	case isGroupFile(path):
		s.fillGroup(now, path, data)
		return
	case isBootstrapFile(path):
		s.fillBootstrap(now, path, data)
		return
	}
	rd := *s.reader
	rd.maxProgram = now.maxProgram
	d := rd.decode(path, data)
	if d.panicked != nil {
		s.panicked(path, d.panicked)
	}
	now.note(d.Problems)
	now.loaded, now.omittedErrors, now.omittedWarnings = d.loaded, d.Errors()-len(now.errs), d.Warnings()-len(now.warnings)
	if !s.opts.V2 {
		now.errs = append(now.errs, v2Errors(d.loaded, s.opts.called("V2"))...)
	}
}

// fillGroup parses the content of a group file.
func (s *Source) fillGroup(now *file, path string, data []byte) {
	d, problems := s.layout.define(path, data)
	now.note(problems)
	if len(now.errs) == 0 {
		now.definition = d
	} else {
		now.groupName = d.Name
	}
}

// note adds problems to the errors and warnings of the file.
func (f *file) note(problems []findings.Problem) {
	for _, p := range problems {
		if p.Warning {
			f.warnings = append(f.warnings, p)
		} else {
			f.errs = append(f.errs, p)
		}
	}
}
