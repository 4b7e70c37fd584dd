package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/daemon"
)

// content returns the content of a file of the repository.
func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The systemd unit in the packages equals the unit in the pages.
func TestSystemdUnit(t *testing.T) {
	unit := content(t, "packaging/chancery.service")
	if !strings.Contains(content(t, "docs/systemd.md"), "```ini\n"+unit+"```\n") {
		t.Error("docs/systemd.md does not show packaging/chancery.service")
	}
	// systemd always restarts the server, and the user is the one to whose group /etc/chancery belongs.
	for _, line := range []string{"Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=0", "User=chancery", "Group=chancery", "StateDirectoryMode=0700"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("FILE-8 the unit has no %s", line)
		}
	}
	if strings.Contains(unit, "DynamicUser") {
		t.Error("FILE-8 no file can belong to the group of a DynamicUser")
	}
	keys := content(t, "packaging/tls.conf")
	named := regexp.MustCompile(`=%d/(\S+)`).FindAllStringSubmatch(keys, -1)
	for _, m := range named {
		if !strings.Contains(keys, "\nLoadCredential="+m[1]+":/") {
			t.Errorf("FILE-8 tls.conf loads no credential %s", m[1])
		}
	}
	if len(named) != 3 {
		t.Errorf("FILE-8 tls.conf names %d credentials", len(named))
	}
	if !strings.Contains(content(t, "docs/systemd.md"), "```ini\n"+keys+"```\n") {
		t.Error("docs/systemd.md does not show packaging/tls.conf")
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed: it has not verified the unit")
		return
	}
	// Nothing is installed here, so the unit gets another program.
	dir := t.TempDir()
	write(t, dir, "chancery.service.d/tls.conf", keys, "chancery.service", strings.NewReplacer("/usr/bin/chancery", binary, "Documentation=man:chancery-serve(1)\n", "").Replace(unit))
	if out, err := exec.Command("systemd-analyze", "verify", filepath.Join(dir, "chancery.service")).CombinedOutput(); err != nil || strings.Contains(string(out), "chancery.service:") {
		t.Errorf("%v: %s", err, out)
	}
}

// The packages install each file of the unit.
func TestPackagedFiles(t *testing.T) {
	config := content(t, ".goreleaser.yaml")
	for from, to := range map[string]string{
		"chancery.service": "/usr/lib/systemd/system/chancery.service", "chancery.sysusers": "/usr/lib/sysusers.d/chancery.conf",
		"chancery.default": "/etc/default/chancery", "tls.conf": "/usr/share/doc/chancery/tls.conf",
	} {
		if !strings.Contains(config, "- src: packaging/"+from+"\n        dst: "+to+"\n") {
			t.Errorf("FILE-8 no package installs %s as %s", from, to)
		}
	}
}

// The script of the packages makes the user of the unit, and lets its group read /etc/chancery. It does not change a
// directory that an administrator has changed.
func TestInstalledDirectoryBelongsToTheUnit(t *testing.T) {
	if !strings.Contains(content(t, "packaging/chancery.sysusers"), "\nu chancery - ") {
		t.Error("FILE-8 systemd-sysusers does not make the user chancery")
	}
	script, err := filepath.Abs("../../packaging/postinstall.sh")
	if err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, mode, group string
		want              string // the changes
	}{
		{"a new directory", "root:root:755", "chancery:x:999:", "systemd-sysusers chancery.conf\nchgrp chancery /etc/chancery\nchmod 2750 /etc/chancery\n"},
		{"another owner", "ana:root:755", "chancery:x:999:", "systemd-sysusers chancery.conf\n"},
		{"another group", "root:ops:755", "chancery:x:999:", "systemd-sysusers chancery.conf\n"},
		{"another mode", "root:root:750", "chancery:x:999:", "systemd-sysusers chancery.conf\n"},
		{"no group", "root:root:755", "", "systemd-sysusers chancery.conf\n"},
	} {
		t.Run("FILE-8 "+tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for program, does := range map[string]string{
				"systemd-sysusers": `echo "${0##*/} $*" >>"$CALLS"`, "chgrp": `echo "${0##*/} $*" >>"$CALLS"`, "chmod": `echo "${0##*/} $*" >>"$CALLS"`,
				"stat": `echo "$MODE"`, "getent": `test -n "$GROUP_LINE" && echo "$GROUP_LINE"`, "systemctl": ":",
			} {
				write(t, dir, "bin/"+program, "#!"+sh+"\n"+does+"\n")
				if err := os.Chmod(filepath.Join(dir, "bin", program), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			write(t, dir, "calls", "")
			cmd := exec.Command(sh, script)
			cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin"), "CALLS=" + filepath.Join(dir, "calls"), "MODE=" + tt.mode, "GROUP_LINE=" + tt.group}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || string(got) != tt.want {
				t.Errorf("%v: %q, want %q", err, got, tt.want)
			}
		})
	}
}

// Variables that packages and images set belong to flags of serve.
func TestPackagedVariables(t *testing.T) {
	serve := daemon.Command()
	for _, path := range []string{"packaging/chancery.default", "packaging/tls.conf", "Dockerfile"} {
		found := regexp.MustCompile(`(?m)(?:^#?|ENV | )(CHANCERY_[A-Z_]+)=`).FindAllStringSubmatch(content(t, path), -1)
		if len(found) < 2 {
			t.Errorf("%s sets %d variables", path, len(found))
		}
		for _, v := range found {
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v[1], "CHANCERY_")), "_", "-")
			if serve.Flags().Lookup(flag) == nil {
				t.Errorf("%s: %s is of no flag", path, v[1])
			}
		}
	}
}

// tools/release-image reads the last stage of the Dockerfile, and supports only these instructions and
// forms.
func TestImage(t *testing.T) {
	_, last, _ := strings.Cut(content(t, "Dockerfile"), "\nFROM scratch\n")
	for line := range strings.Lines(last) {
		if !regexp.MustCompile(`^(#.*|COPY .*|USER [0-9:]+|EXPOSE [0-9 ]+|(ENV)( [A-Z_]+=[^\s"']+)+|(ENTRYPOINT|CMD) \[("[^", ]+"(, )?)+\])\n$`).MatchString(line) &&
			line != `HEALTHCHECK --start-period=30s CMD ["/chancery", "health"]`+"\n" {
			t.Errorf("%s", line)
		}
	}
	if n := strings.Count(last, "\n"); n < 8 {
		t.Errorf("%d lines", n)
	}
}

// Releases are published only under the project's own names, and only once.
func TestPublishedNames(t *testing.T) {
	own := []string{"RELEASE_MAINTAINER=Me <me@me.example>", "RELEASE_REPOSITORY=me/chancery", "RELEASE_IMAGE=registry.example/chancery"}
	for i := range own {
		publish := exec.Command("../../tools/release-publish", "v99.0.0")
		publish.Env = append(os.Environ(), own...)
		name, _, _ := strings.Cut(own[i], "=")
		publish.Env = append(publish.Env, name+"=nobody.invalid")
		if out, err := publish.CombinedOutput(); err == nil || !strings.Contains(string(out), `"nobody.invalid" is nobody's: set yours in packaging/publisher`) {
			t.Errorf("%v: %s", err, out)
		}
	}
	publish := exec.Command("../../tools/release-publish", "v99.0.0")
	publish.Env = append(os.Environ(), own...)
	if out, err := publish.CombinedOutput(); err == nil || strings.Contains(string(out), "nobody's") {
		t.Errorf("%v: %s", err, out)
	}
}

// Each version of the changes has notes that a release can show.
func TestReleaseNotes(t *testing.T) {
	titles := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(content(t, "CHANGELOG.md"), -1)
	if len(titles) == 0 {
		t.Fatal("there are none")
	}
	for i, title := range titles {
		if !regexp.MustCompile(`^(Unreleased|v\d+\.\d+\.\d+(-[a-z0-9.]+)? \(\d{4}-\d\d-\d\d\))$`).MatchString(title[1]) || i > 0 && title[1] == "Unreleased" {
			t.Errorf("%q is neither \"Unreleased\", at the top, nor like \"v0.1.0 (2026-12-01)\"", title[1])
		}
		version, _, _ := strings.Cut(title[1], " ")
		if out, err := exec.Command("../../tools/release-notes", version).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "### ") {
			t.Errorf("%s: %v: %.200s", version, err, out)
		}
	}
	if out, err := exec.Command("../../tools/release-notes", "v99.0.0").CombinedOutput(); err == nil {
		t.Errorf("%s", out)
	}
}

// The scripts of a package must parse: otherwise the installation fails.
func TestPackageScripts(t *testing.T) {
	scripts, _ := filepath.Glob("../../packaging/*.sh")
	for _, script := range scripts {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", script, out)
		}
	}
	if len(scripts) != 3 {
		t.Error(scripts)
	}
}

// Downloads for the tests of real clients have a hash, so that a change is noticed.
func TestDownloadsHaveHashes(t *testing.T) {
	for _, path := range []string{"e2e/clients/envoy/requirements.txt", "e2e/clients/python/requirements.txt", "e2e/clients/sovereign/requirements.txt"} {
		for requirement := range strings.SplitSeq(strings.ReplaceAll(content(t, path), "\\\n", ""), "\n") {
			if requirement != "" && requirement[0] != '#' && !regexp.MustCompile(`^[a-z0-9_-]+==[0-9a-z.]+ .*--hash=sha256:[0-9a-f]{64}$`).MatchString(requirement) {
				t.Errorf("%s: %s", path, requirement)
			}
		}
	}
	install := content(t, "e2e/install.sh")
	if n := strings.Count(install, " -m pip "); n != strings.Count(install, "--require-hashes") || n != 3 {
		t.Errorf("pip is used %d times", n)
	}
	if lock := content(t, "e2e/clients/node/package-lock.json"); strings.Count(lock, `"integrity"`) < 10 || !strings.Contains(install, "npm ci") {
		t.Error("npm's lock has no hashes, or is not used")
	}
}
