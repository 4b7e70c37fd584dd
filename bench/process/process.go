// Package process starts servers for benchmarks of the command chancery.
package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// A Server is a running "chancery serve".
type Server struct {
	XDS string // host:port

	cmd *exec.Cmd
}

// Start runs "BINARY serve ARGS" and waits until it serves. The arguments must not choose a port of xDS.
func Start(binary string, args ...string) (*Server, error) {
	s := &Server{cmd: exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	in := bufio.NewScanner(out)
	for in.Scan() {
		if _, after, ok := strings.Cut(in.Text(), `"xds":"`); ok && strings.Contains(in.Text(), `"serving"`) {
			s.XDS, _, _ = strings.Cut(after, `"`)
			go func() { _, _ = io.Copy(os.Stderr, out) }()
			return s, nil
		}
		fmt.Fprintln(os.Stderr, in.Text())
	}
	return nil, errors.New("the server does not serve in time")
}

// Kill ends the server.
func (s *Server) Kill() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() }

// Reload sends SIGHUP, as an operator does.
func (s *Server) Reload() error { return s.cmd.Process.Signal(syscall.SIGHUP) }

// CPU returns the CPU seconds that the servers have used.
func CPU(servers ...*Server) (sum float64) {
	for _, s := range servers {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, i := range []int{11, 12} {
			n, _ := strconv.Atoi(f[i])
			sum += float64(n) / 100
		}
	}
	return sum
}
