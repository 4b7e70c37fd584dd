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
	from  = flag.Uint64("seed", 0, "begin with the story of this `seed`; 0: a random seed, which the output names")
	leave = flag.String("without", "", "`features` that no story has, separated by commas: alias, ttl, ondemand, phantom, single, sotw, delta, VHDS and other types")
	many  = flag.Int("failures", 1, "end after this number of failed stories")
)

func left() features {
	f := features{}
	for s := range strings.SplitSeq(*leave, ",") {
		f[s] = s != ""
	}
	return f
}

// TestSoak runs random stories against two kinds of servers. The library runs in
// memory with a fake clock: minutes take milliseconds, and a seed reproduces a
// failure. The program runs with its files, flags and sockets: there a seed gives the
// same steps, but not the same timing.
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
			known = nil // the flags select other stories, or change those of known seeds
		}
		soaks(t, known, func(s story) string {
			why, log := inMemory(t, s, left(), last)
			if why == "" {
				return ""
			}
			short, log := shrink(t, s, why, log, last)
			return fmt.Sprintf("%s\nthe shortest story with this failure, %d of %d steps:\n%s", why, len(short.steps), len(s.steps), log)
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

// manners are flags that change the responses and their time. The seed chooses one.
var manners = [][]string{
	{"--removal-grace", "300ms"},
	{"--removal-grace", "300ms", "--resource-errors", "--max-first-answers", "1"},
	{},
	{"--removal-grace", "0", "--force-ttl"},
	{"--removal-grace", "300ms", "--max-connection-age", "3s", "--max-connection-age-grace", "200ms"},
}

// perSecond limits the number of stories in a second, so that a long run leaves CPU
// to other programs.
const perSecond = 20

// told are the seeds of stories that failed once; they run first. Each defect that
// they found has a transcript. After a change of newStory the seeds give other stories:
// empty the list then.
var told = []uint64{
	50009, // later subscriptions to routes restrict a wildcard of VHDS
	50474, // a reconnecting client has a resource that its alias no longer matches
	50872, // the alias has become the name of another resource
	50317, // the client unsubscribes a name; its collection does not have the name
	50411, // the same while the response is in flight
	50732, // a resource becomes on demand while the client is disconnected

	227360905, // SotW cannot remove a route, so the cluster of the route stays
	393004435, // the same, with a version from before the route was deleted
	248027861, // an on-demand resource is deleted, matched by an alias and unsubscribed; its collection stays subscribed
	810277641, // unsubscribing a name without a subscription ends another subscription by an alias
}

// soaks runs one story after the other until the time is over, those of known seeds
// first.
func soaks(t *testing.T, known []uint64, tell func(story) string) {
	t.Helper()
	next, wrong, n := firstSeed(), 0, 0
	t.Logf("the first seed is %d", next)
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

func firstSeed() uint64 {
	if *from != 0 {
		return *from
	}
	return rand.Uint64N(1e9)
}

// inMemory runs a story against the library. It returns the failure, or "", and the log of
// the messages.
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

// fault returns a failure without its names and versions, so that equal failures compare as equal.
func fault(wrong string) string {
	return names.ReplaceAllString(wrong, "")
}

var names = regexp.MustCompile(`^\w+: |\S*[@/0-9]\S*| [abcn]\b`)

// shrink removes steps from a story as long as it fails in the same way.
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
