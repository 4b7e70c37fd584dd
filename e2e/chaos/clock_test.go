package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

var clockRows = []row{
	{name: "SAFE-9 SAFE-10 the clock jumps", fault: clockJumps, setup: setup{server: withJumps}},
}

// The ages of the program at which its clock is wrong: first an hour ahead, then an hour behind.
const (
	ahead  = 20 * time.Second
	behind = 30 * time.Second
)

// withJumps builds the program with a clock that jumps. Setting the machine's clock needs
// privileges and affects all programs, and namespaces have no wall clock. So withJumps changes the
// function from which a Go program gets the time of day. Measured durations do not jump, as when an
// operator sets the clock.
func withJumps(t *testing.T, s *server) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	const reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(text), reads, reads+"\tsec += jumped(mono - startNano)\n", 1)
	if changed == string(text) {
		t.Fatalf("%s has no line that this test could change", src)
	}
	changed += "\nfunc jumped(age int64) int64 {\n\tswitch {\n\tcase age < " + nanoseconds(ahead) + ":\n\t\treturn 0\n\tcase age < " + nanoseconds(behind) + ":\n\t\treturn 3600\n\t}\n\treturn -3600\n}\n"
	dir := filepath.Dir(s.dir)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{src: filepath.Join(dir, "time.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"time.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.binary = filepath.Join(dir, "jumping")
	if err := harness.Build("../..", s.binary, "-overlay", filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}
}

func nanoseconds(d time.Duration) string { b, _ := json.Marshal(int64(d)); return string(b) }

// Commits go on while the clock is right, an hour ahead, and an hour behind.
func clockJumps(r *rig) {
	var longest time.Duration
	commits := 0
	for time.Since(r.begun) < behind+10*time.Second { // the program is older than the fault
		longest = max(longest, r.notices(5*time.Second, nil))
		commits++
	}
	r.untouched()
	b, err := os.ReadFile(r.log)
	r.must(err)
	first := time.Time{}
	var most, least time.Duration
	for line := range strings.Lines(string(b)) {
		var l struct{ Time time.Time }
		if json.Unmarshal([]byte(line), &l) != nil || l.Time.IsZero() {
			continue
		}
		if first.IsZero() {
			first = l.Time
		}
		most, least = max(most, l.Time.Sub(first)), min(least, l.Time.Sub(first))
	}
	if most < time.Hour || least > -50*time.Minute {
		r.t.Errorf("the log says that the clock went %v forward and %v back: it did not jump", most, least)
	}
	r.note("%d commits while the clock jumped an hour ahead and two back, each told to the whole fleet within %.1f s", commits, longest.Seconds())
}
