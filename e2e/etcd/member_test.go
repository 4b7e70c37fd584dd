package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// memberEnv is the environment variable that makes the test program run a member of an etcd.
const memberEnv = "CHANCERY_TEST_MEMBER"

// A program is a process that can be killed, and started again as it was.
type program struct {
	name string
	log  string
	make func() *exec.Cmd
	cmd  *exec.Cmd
}

func (p *program) start(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.cmd = p.make()
	p.cmd.Stdout, p.cmd.Stderr = f, f
	harness.DieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill is kill -9.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// A memberConfig is the configuration of a member.
type memberConfig struct{ Name, Dir, Peer, Client, Cluster string }

// beMember runs a member of an etcd until it is killed.
func beMember(config string) {
	var m memberConfig
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		panic(err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.LogLevel = "error"
	peer, client := url.URL{Scheme: "http", Host: m.Peer}, url.URL{Scheme: "http", Host: m.Client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	e, err := embed.StartEtcd(c)
	if err != nil {
		panic(err)
	}
	panic(<-e.Err())
}

// A town is an etcd of three members, each a process.
type town struct {
	members   []*program
	endpoints []string
}

func startTown(t testing.TB) *town {
	t.Helper()
	var configs []memberConfig
	var cluster []string
	for i := range 3 {
		m := memberConfig{Name: fmt.Sprint("m", i), Dir: filepath.Join(t.TempDir(), "etcd"), Peer: free(t), Client: free(t)}
		cluster = append(cluster, m.Name+"=http://"+m.Peer)
		configs = append(configs, m)
	}
	w := &town{}
	for _, m := range configs {
		m.Cluster = strings.Join(cluster, ",")
		config, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		p := &program{name: m.Name, log: m.Dir + ".log", make: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), memberEnv+"="+string(config))
			return cmd
		}}
		p.start(t)
		t.Cleanup(p.kill)
		w.members, w.endpoints = append(w.members, p), append(w.endpoints, m.Client)
	}
	harness.Eventually(t, 30*time.Second, "an etcd with a leader", func() error {
		_, err := w.leader(t.Context())
		return err
	})
	return w
}

// leader returns the index of the leading member.
func (w *town) leader(ctx context.Context) (int, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints, Logger: zap.NewNop(), DialTimeout: time.Second})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for i, e := range w.endpoints {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		s, err := c.Status(limited, e)
		cancel()
		if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
			return i, nil
		}
	}
	return 0, fmt.Errorf("none of %s leads", w.endpoints)
}
