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
	for _, line := range []string{"Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=0"} { // systemd always restarts the server
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit has no %s", line)
		}
	}
	keys := content(t, "packaging/tls.conf")
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
