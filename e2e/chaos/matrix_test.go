package chaos

import (
	"syscall"
	"testing"
	"time"
)

// A row is a fault.
type row struct {
	name string
	fast bool // the row takes seconds, and also runs in short mode
	setup
	fault func(r *rig)
}

// long is d, or less where rows are to take seconds.
func long(d, short time.Duration) time.Duration {
	if *whole {
		return d
	}
	return short
}

// "Failure matrix: 500 fake clients and two Envoys under 500 requests/s, against real
// processes." Rows that need nothing special share a rig, one after the other.
func TestMatrix(t *testing.T) {
	rows := []row{
		{name: "SAFE-10 killed and started again", fast: true, fault: killed},
		{name: "SAFE-10 killed and started on other content", fast: true, fault: startedOnOther},
		{name: "SAFE-12 ended by SIGTERM and started again", fast: true, fault: ended},
		{name: "SAFE-1 stopped and continued", fast: true, fault: stopped},
	}
	rows = append(rows, networkRows...)
	rows = append(rows, abuseRows...)
	rows = append(rows, strangerRows...)
	rows = append(rows, diskRows...)
	rows = append(rows, clockRows...)
	var shared *rig
	defer func() { t.Logf("%d rows", len(rows)) }()
	for _, row := range rows {
		if !row.fast && !*whole {
			continue
		}
		if row.clients != 0 || row.server != nil {
			t.Run(row.name, func(t *testing.T) { r := newRig(t, row.setup); r.plays(t, func() { row.fault(r) }) })
			continue
		}
		if shared == nil {
			shared = newRig(t, setup{})
		}
		if !t.Run(row.name, func(t *testing.T) { shared.plays(t, func() { row.fault(shared) }) }) {
			shared = nil // the state of the rig is unknown after a failure
		}
	}
}

// Versions depend on the content alone. So a server without memory has nothing to send to clients
// that state their versions.
func killed(r *rig) {
	r.must(r.kill())
	r.goesOn(long(5*time.Second, time.Second))
	r.must(r.start())
	r.note("after the start: %v", r.converges("after the restart"))
	r.nothingNew()
}

// nothingNew checks that reconnecting clients got only resources whose versions they cannot state:
// named types over SotW.
func (r *rig) nothingNew() {
	r.t.Helper()
	if n := r.fleet.resources.Load(); n > 0 {
		r.t.Errorf("%d resources were told again to clients that have them", n)
	}
	r.note("%d resources told again, of named types over SotW", r.fleet.named.Load())
}

func startedOnOther(r *rig) {
	r.must(r.kill())
	for range 5 {
		r.commit()
	}
	r.goesOn(long(5*time.Second, time.Second))
	r.must(r.start())
	r.note("five generations later, after the start: %v", r.converges("after the restart"))
}

func ended(r *rig) {
	r.must(r.stop())
	r.must(r.start())
	r.note("after the start: %v", r.converges("after the restart"))
}

// For the process this is like a suspended machine: no time passes, and afterwards all timers are
// due at once.
func stopped(r *rig) {
	r.must(r.signal(syscall.SIGSTOP))
	r.commit()
	r.goesOn(long(30*time.Second, 2*time.Second))
	r.must(r.signal(syscall.SIGCONT))
	r.note("what changed meanwhile: %v", r.converges("when it goes on"))
}
