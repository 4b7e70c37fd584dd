package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/server"
)

var (
	lasts = flag.Duration("for", 20*time.Second, "how long to soak")
	from  = flag.Uint64("seed", 0, "begin with the story of this `seed`; 0: any, which the output says")
	leave = flag.String("without", "", "`features` that no story has, apart by commas: alias, ttl, ondemand, phantom, single, sotw, delta, VHDS and other types")
	many  = flag.Int("failures", 1, "end after so many stories that went wrong")
)

func left() features {
	f := features{}
	for s := range strings.SplitSeq(*leave, ",") {
		f[s] = s != ""
	}
	return f
}

// Two ways to serve are judged. The library, in memory: time costs nothing, so
// that a story of minutes takes milliseconds, and the seed of one that goes wrong
// tells it again. And the program with its files, flags and sockets: there the
// seed says what was tried, and the rest is up to the machine.
//
//	go test ./soak -run 'TestSoak/.*library' -seed 4711 -for 1s
func TestSoak(t *testing.T) {
	universe = slices.DeleteFunc(universe, func(k *kind) bool { return left()[k.typ.Short] })
	last := filepath.Join(os.TempDir(), fmt.Sprintf("chancery-soak-%d.txt", os.Getpid()))
	t.Cleanup(func() { os.Remove(last) })
	t.Run("SAFE-1 ADS-4 library", func(t *testing.T) {
		t.Parallel()
		fmt.Fprintf(os.Stderr, "if this process dies, the conversation is in %s\n", last)
		known := told
		if *from != 0 || *leave != "" {
			known = nil // another story is wanted, or they would be others
		}
		soaks(t, known, func(s story) string {
			why, log := inMemory(t, s, left(), last)
			if why == "" {
				return ""
			}
			short, log := shrink(t, s, why, log, last)
			return fmt.Sprintf("%s\nwhat remains of the story, %d of %d steps:\n%s", why, len(short.steps), len(s.steps), log)
		})
	})
	t.Run("SAFE-1 ADS-4 program", func(t *testing.T) {
		t.Parallel()
		bin, err := built()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(filepath.Dir(bin)) })
		soaks(t, nil, func(s story) (wrong string) {
			t.Run(fmt.Sprint("seed=", s.seed), func(t *testing.T) {
				flags := manners[s.seed%uint64(len(manners))]
				d := startDaemon(t, bin, flags...)
				d.old = slices.Contains(flags, "--max-connection-age")
				r := &run{subject: d, story: s, less: left()}
				if wrong = r.tell(); wrong != "" {
					wrong = fmt.Sprintf("serve %v\n%s\n%s", flags, r.conversation(), wrong)
				}
				if d.probe != nil {
					d.probe.close()
				}
			})
			return wrong
		})
	})
	t.Run("SAFE-1 SAFE-9 town", func(t *testing.T) {
		t.Parallel()
		bin, err := built()
		if err != nil {
			t.Fatal(err)
		}
		newTown(t, bin).lives(t)
	})
}

// manners are flags that change what is said to clients, and when.
var manners = [][]string{
	{"--removal-grace", "300ms"},
	{"--removal-grace", "300ms", "--resource-errors", "--max-first-answers", "1"},
	{},
	{"--removal-grace", "0", "--force-ttl"},
	{"--removal-grace", "300ms", "--max-connection-age", "3s", "--max-connection-age-grace", "200ms"},
}

// perSecond bounds how many stories are told, so that an hour of it leaves the
// machine to others.
const perSecond = 20

// told are seeds of stories that once went wrong. They are told first. Whoever
// changes how stories are made empties the list: what they found has transcripts.
var told = []uint64{
	50009, // a VHDS wildcard is narrowed by routes that are asked for later
	50474, // a client that comes back has a resource that its alias finds no more
	50872, // the alias is the name of another resource now
	50317, // a name is dropped beneath a collection that does not have it
	50411, // the same while its response is on the way
	50732, // a resource becomes on demand while the client is away

	227360905, // a route that SotW cannot take back refers to a cluster, which stays
	393004435, // the same, by a version that the client had before it lost the route
	248027861, // what is on demand is lost, found by an alias and dropped, and its collection is not
	810277641, // a name that a client does not ask for, and drops, ends another by an alias
}

// soaks tells one story after the other until the time is over: in the library,
// those that are known first.
func soaks(t *testing.T, known []uint64, tell func(story) string) {
	t.Helper()
	next, wrong, n := firstSeed(), 0, 0
	t.Logf("begins with seed %d", next)
	pace := time.NewTicker(time.Second / perSecond)
	defer pace.Stop()
	for end := time.Now().Add(*lasts); time.Now().Before(end) && wrong < *many; n++ {
		<-pace.C
		seed := next
		if n < len(known) {
			seed = known[n]
		} else {
			next++
		}
		if why := tell(newStory(seed, left())); why != "" {
			wrong++
			t.Errorf("seed %d: %s", seed, why)
		}
	}
	t.Logf("%d stories", n)
}

// firstSeed returns the seed to begin with.
func firstSeed() uint64 {
	if *from != 0 {
		return *from
	}
	return rand.Uint64N(1e9)
}

// inMemory tells a story and returns what went wrong, and the conversation.
func inMemory(t *testing.T, s story, less features, last string, more ...grpc.ServerOption) (wrong, log string) {
	t.Helper()
	out, err := os.Create(last)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	synctest.Test(t, func(*testing.T) {
		var options []server.Option
		if s.seed%4 == 1 {
			options = append(options, server.WithResourceErrors())
		}
		if s.seed%4 == 2 {
			options = append(options, server.WithForcedTTL(), server.WithRemovalGrace(0))
		}
		l := newLibrary(options, more...)
		defer l.stop()
		r := &run{subject: l, story: s, less: less, out: out}
		wrong = r.tell()
		log = r.conversation()
	})
	return wrong, log
}

// fault is what went wrong without names and versions.
func fault(wrong string) string {
	return names.ReplaceAllString(wrong, "")
}

var names = regexp.MustCompile(`^\w+: |\S*[@/0-9]\S*| [abcn]\b`)

// shrink leaves out steps as long as the same goes wrong.
func shrink(t *testing.T, s story, why, log, last string) (story, string) {
	t.Helper()
	for n := len(s.steps) / 2; n > 0; {
		less := false
		for i := 0; i+n <= len(s.steps); {
			shorter := s.without(i, i+n)
			if len(shorter.steps) == 0 || shorter.steps[len(shorter.steps)-1].kind != "rest" {
				i += n
				continue
			}
			if w, l := inMemory(t, shorter, left(), last); w != "" && fault(w) == fault(why) {
				s, log, less = shorter, l+"\n"+w, true
			} else {
				i += n
			}
		}
		if !less {
			n /= 2
		}
	}
	return s, log
}
