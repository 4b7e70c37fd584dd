package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// "Bad input of every kind: clear error, nothing lost": who reads the log may end, as
// head and a log collector that is restarted do, and the server goes on without. (SAFE-10)
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	port := freePort(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "serve", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:"+port)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for lines := bufio.NewScanner(r); lines.Scan() && !strings.Contains(lines.Text(), `"msg":"serving"`); {
	}
	r.Close()
	d := &daemon{T: t, dir: dir, cmd: cmd}
	write(t, dir, "b.yaml", cluster("b")) // a line of the log
	d.tells(port, "/metrics", `xds_server_resources{group="default",type="cds"} 2`+"\n")
	d.signal(syscall.SIGHUP) // and another
	time.Sleep(100 * time.Millisecond)
	if resp, err := http.Get("http://127.0.0.1:" + port + "/healthz"); err != nil {
		t.Error(err)
	} else {
		resp.Body.Close()
	}
	d.signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
