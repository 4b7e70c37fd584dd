package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/source/dir"
)

// A Config holds the flags of serve. After the checks, only the limits that depend on the memory
// still change.
type Config struct {
	dir      string            // the served directory or URL, for logs and operators
	root     string            // the directory to read; "": none
	upstream *xdsclient.Server // the upstream of a relay; nil: none

	listening       listenFlags
	rest            restFlags
	health          healthFlags
	identity        identityFlags
	admin           adminFlags
	endpoints       endpointFlags
	store           storeFlags
	files           fileFlags
	state           stateFlags
	clients         clientFlags
	shed            shedFlags
	limits          limitFlags
	logging         cli.LogFlags
	insecureSecrets bool // secrets may be sent in plain text
	quarantine      bool
	passRefusals    bool
	drain           time.Duration
	drainDelay      time.Duration
}

// storeFlags are the flags of the store of revisions.
type storeFlags struct {
	at       storeclient.Flags
	replicas replicaFlags
	write    bool // the admin API accepts commits
	keep     int  // number of revisions that a sweep keeps; 0: the server does not sweep
}

// fileFlags are the flags for reading files, and for the removals that a load may make.
type fileFlags struct {
	sets          []string
	maxFile       int64
	followOutside bool
	validate      bool
	emptyMissing  bool
	v2            bool // files may contain v2 resources; a copy of the flag in clientFlags

	allowEmpty      bool
	allowMassDelete bool
	atOnce          bool
	confirm         time.Duration
}

// healthFlags are the flags of the listener for metrics and health.
type healthFlags struct {
	address string // "": neither metrics nor health

	parsed listen.Address // the address, after check
}

func (s *storeFlags) flags(f *pflag.FlagSet) {
	s.at.Register(f)
	s.replicas.flags(f)
	f.BoolVar(&s.write, "store-write", false, "allow authenticated callers of the admin API (unix socket, token or client certificate) to commit to the store, freeze groups and change rollouts")
	f.IntVar(&s.keep, "store-keep", 0, "keep the last `NUMBER` of revisions in the store, and all since the oldest that a group is frozen at; remove older ones, at most once an hour; 0: remove none")
}

func (l *fileFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&l.validate, "validate", false, "reject configuration that Envoy would refuse, as chancery check does, and keep the previous configuration")
	dirload.ProtoSetFlag(f, &l.sets)
	cli.SizeFlag(f, &l.maxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	dirload.FollowLinksFlag(f, &l.followOutside)
	f.BoolVar(&l.emptyMissing, "empty-assignments", false, "send empty endpoints (ClusterLoadAssignment) for EDS clusters whose endpoints are in no file, so that Envoy does not wait for them")
}

func (l *fileFlags) loading(f *pflag.FlagSet) {
	f.BoolVar(&l.allowEmpty, "allow-empty", false, "serve a directory without resources: clients lose all their resources")
	f.DurationVar(&l.confirm, "confirm-removals", 5*time.Second, "`time` that resources must be missing from the files before they are removed, if they are more than a tenth of a type; 0: remove at once")
	f.BoolVar(&l.atOnce, "load-at-once", false, "load each change of a file immediately, not after 100 ms without a change; use it only if each change is one rename")
	f.BoolVar(&l.allowMassDelete, "allow-mass-delete", false, "allow every load to remove more than half of a type, or everything, at once; chancery reload --allow-mass-delete allows one load")
}

// options returns the options of a directory source.
func (l *fileFlags) options(sv *services) dir.Options {
	r := &loadReview{exposed: sv.exposed, emptyAssignments: l.emptyMissing}
	return dir.Options{
		Log: sv.log, MaxFile: l.maxFile, FollowLinksOutside: l.followOutside, V2: l.v2, AllowMassDelete: l.allowMassDelete,
		LoadAtOnce: l.atOnce, Types: sv.types, CEL: cel.Compile, Confirm: l.confirm, References: true, Validate: l.validate, Flag: dirload.FlagOfOption, Review: r.load,
		ReadBootstraps: true,
	}
}

func (c *Config) draining(f *pflag.FlagSet) {
	f.BoolVar(&c.quarantine, "quarantine", true, "when a client refuses a response, find the refused resource and send the others; the client keeps its last accepted version of that resource; =false: do not send the response again until it changes")
	f.BoolVar(&c.passRefusals, "pass-refusals", false, "report the resources that clients refuse, and why, to the upstream of a delta relay; the upstream may then withhold them from all clients")
	f.DurationVar(&c.drain, "drain", 5*time.Second, "`time` over which streams are closed at shutdown")
	f.DurationVar(&c.drainDelay, "drain-delay", 0, "`time` at shutdown in which the server is not ready but still serves, so that load balancers notice")
}

// check parses the addresses and checks all flags; it returns usage errors. The function given
// reports whether the user gave a flag.
func (c *Config) check(given func(flag string) bool) error {
	if c.health.address != "" {
		var err error
		c.health.parsed, err = listen.Parse(c.health.address)
		if err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	if err := errors.Join(dirload.CheckMaxFile(c.files.maxFile), c.limits.check(given), c.clients.check()); err != nil {
		return err
	}
	for _, t := range []timeFlag{{"confirm-removals", c.files.confirm, 0, maxTime}, {"drain", c.drain, 0, maxTime}, {"drain-delay", c.drainDelay, 0, maxTime}} {
		if err := t.check(); err != nil {
			return err
		}
	}
	if err := c.rest.check(); err != nil {
		return err
	}
	store := c.store.at.URL
	if c.store.keep < 0 || c.store.keep > 0 && store == "" {
		return errors.New("--store-keep: needs --store, and must not be negative")
	}
	if c.store.write && store == "" {
		return errors.New("--store-write: needs --store")
	}
	if err := c.listening.check(); err != nil {
		return err
	}
	if err := errors.Join(c.admin.check(), c.store.replicas.check(store, &c.admin), c.shed.check(store, c.admin.served())); err != nil {
		return err
	}
	if err := c.identity.check(c.listening.tls.ClientCA); err != nil {
		return err
	}
	c.files.v2 = c.clients.v2
	return c.checkAddresses()
}

// checkSource chooses the source: the argument, or the store. It returns usage errors.
func (c *Config) checkSource(given func(flag string) bool, arg string) error {
	c.dir, c.root = arg, arg
	isURL, store := strings.HasPrefix(arg, xdsclient.Scheme), c.store.at.URL
	switch {
	case store != "" && isURL:
		return fmt.Errorf("give %s or --store, not both", arg)
	case store != "":
		return c.checkStore(given)
	case arg == "":
		return errors.New("serve needs one directory or xds:// URL, or --store")
	case isURL:
		return c.checkRelay(given)
	}
	return checkNoRelayFlags(given, arg, "a directory")
}

func (c *Config) checkStore(given func(flag string) bool) error {
	url := c.store.at.URL
	if err := checkNoRelayFlags(given, url, "a store"); err != nil {
		return err
	}
	if c.root == "" {
		if err := checkNoFileFlags(given, url); err != nil {
			return err
		}
	}
	folder, etcd, err := c.store.at.Check()
	if err != nil {
		return err
	}
	c.dir = url
	if etcd != nil {
		c.dir = etcd.String()
	} else if abs, err := filepath.Abs(folder); err == nil {
		c.dir = "file:" + abs
	}
	return nil
}

func (c *Config) checkRelay(given func(flag string) bool) error {
	arg := c.root
	if err := checkNoFileFlags(given, arg); err != nil {
		return err
	}
	var defaults xdsclient.Flags
	up, err := defaults.Server(arg)
	switch {
	case err != nil:
		return err
	case c.passRefusals && !up.Delta:
		// A SotW NACK refuses the response as a whole. If the upstream then withheld a resource, the
		// relay would take it for a removal.
		return errors.New("--pass-refusals needs a delta relay: add delta to the URL, as in xds://HOST:PORT?delta, not " + arg)
	case c.passRefusals && !c.quarantine:
		return errors.New("--pass-refusals needs --quarantine, which finds the refused resources")
	}
	c.upstream, c.dir, c.root = up, up.Text, ""
	return nil
}

// exposed returns how the listeners would expose secrets. It is the zero value if they do not, or if the
// flags allow it.
func (c *Config) exposed() dirload.Exposure {
	if c.insecureSecrets {
		return dirload.Exposure{}
	}
	return exposed(&c.listening, &c.rest)
}
