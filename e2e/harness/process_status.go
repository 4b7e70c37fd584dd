package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns a figure of a process's memory in MiB, by its name in /proc/PID/status. VmHWM is the peak
// resident size. RssAnon is the resident size without pages of files, such as the program's text.
func Memory(pid int, name string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d: no %s", pid, name)
}
