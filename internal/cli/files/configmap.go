package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
)

// The files of --configmap. "kubectl apply -f OUT" does not apply the patch, because of its file name extension.
const (
	configMapsFile = "configmaps.yaml"
	secretsFile    = "secrets.yaml"
	patchFile      = "deployment.patch"
)

// maxObject is the maximum size in bytes of all values of a ConfigMap or Secret.
const maxObject = 1 << 20

// A mountedFile is a file of DIR as part of a ConfigMap or Secret.
type mountedFile struct {
	path   string // below DIR, with slashes
	key    string
	data   []byte
	secret bool
}

// size returns the share of a file in the size of its object. The API server stores each key up to three
// times, in the object and in its managedFields.
func (f mountedFile) size() int { return len(f.data) + 3*len(f.key) + 16 }

// objectName is a valid name of a ConfigMap of at most maxObjectName bytes, which leave room for a number. The regular
// expression has no limit, because each start of the program would compile each step of that.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

const maxObjectName = 240

// envoyOnlyFlags are the flags for files of Envoy.
var envoyOnlyFlags = []string{"format", "watch", "settle", "path-prefix", "keep-config-sources", "node", "cluster", "admin"}

// checkConfigMap checks the flags of --configmap.
func (e *exporter) checkConfigMap() error {
	if len(e.configMap) > maxObjectName || !objectName.MatchString(e.configMap) {
		return fmt.Errorf("--configmap: %q: must be lower-case letters, digits and '-', with a letter or digit at both ends", e.configMap)
	}
	for _, flag := range envoyOnlyFlags {
		if cli.OnCommandLine(e.cmd, flag) {
			return fmt.Errorf("--%s is for the files of Envoy, not for --configmap", flag)
		}
	}
	return nil
}

// exportConfigMaps writes DIR as manifests for Kubernetes.
func (e *exporter) exportConfigMaps(report dir.Report) error {
	if report.Rejected != nil {
		return dirload.LoadError(e.stderr, e.dir, "exported", report.Rejected)
	}
	all, err := e.mountedFiles()
	if err != nil {
		return err
	}
	setKeys(all)
	var maps, hidden [][]mountedFile
	for _, f := range all {
		to := &maps
		if f.secret {
			to = &hidden
		}
		if f.size() > maxObject {
			return cli.Fail(fmt.Errorf("%s: %d bytes: a ConfigMap or Secret has at most 1 MiB", filepath.Join(e.dir, f.path), len(f.data)),
				"put its resources into several files")
		}
		last := len(*to) - 1
		if last < 0 || total((*to)[last])+f.size() > maxObject {
			*to = append(*to, nil)
			last++
		}
		(*to)[last] = append((*to)[last], f)
	}
	return e.writeManifests(maps, hidden)
}

func total(files []mountedFile) (n int) {
	for _, f := range files {
		n += f.size()
	}
	return n
}

// mountedFiles reads the files that the load has read, and the bootstraps in their directories.
func (e *exporter) mountedFiles() (all []mountedFile, err error) {
	dirs := map[string]bool{e.dir: true}
	for _, path := range e.source.Files() {
		dirs[filepath.Dir(path)] = true
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		all = append(all, mountedFile{path: path, data: data, secret: e.withSecret[path] || unreadSecret(data)})
	}
	finder := secrets.NewFinder(e.load.Types)
	for d := range dirs {
		m, problems := dirload.Bootstrap(d, e.load)
		if len(problems) > 0 && m == nil {
			return nil, dirload.LoadError(e.stderr, e.dir, "exported", dir.Errors(problems))
		}
		if m == nil {
			continue
		}
		path := filepath.Join(d, importer.BootstrapFile)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		all = append(all, mountedFile{path: path, data: data, secret: len(finder.Find(m).Values) > 0 || unreadSecret(data)})
	}
	for i := range all {
		below, err := filepath.Rel(e.dir, all[i].path)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		all[i].path = filepath.ToSlash(below)
	}
	slices.SortFunc(all, func(a, b mountedFile) int { return cmp.Compare(a.path, b.path) })
	return all, nil
}

// unreadSecret reports whether something in a file may be a secret although no resource contains it: a comment, or
// the value of a key that Envoy ignores. The rule is coarse on purpose, because a Secret is always right.
func unreadSecret(data []byte) bool {
	ignored := bytes.Contains(data, []byte(protoyaml.Ignored))
	for line := range bytes.Lines(data) {
		if !ignored {
			_, line, _ = bytes.Cut(line, []byte("#"))
		}
		if !secrets.ShowsLines(line, nil) || !secrets.ShowsLine(string(line)) {
			return true
		}
	}
	return false
}

var notInKey = regexp.MustCompile(`[^-._a-zA-Z0-9]+`)

// setKeys gives each file a unique key. A key is the path with dots for slashes if that is a valid key and
// no earlier file has it. Otherwise the key has a hash of the path at its end.
func setKeys(files []mountedFile) {
	used := map[string]bool{}
	for i, f := range files {
		dotted := strings.ReplaceAll(f.path, "/", ".")
		key := notInKey.ReplaceAllString(dotted, "-")
		if key != dotted || len(key) > 200 || used[key] {
			sum := sha256.Sum256([]byte(f.path))
			key = fmt.Sprintf("%.200s-%x", key, sum[:8])
		}
		used[key] = true
		files[i].key = key
	}
}

// The manifests, as far as --configmap needs them. The tests of source/k8s read them with the types of Kubernetes.
type (
	// An object does not end with data: tools that split a file at "\n---" would cut the last line break of a value.
	object struct {
		APIVersion string            `yaml:"apiVersion"`
		BinaryData map[string]string `yaml:"binaryData,omitempty"`
		Data       map[string]string `yaml:",omitempty"`
		Kind       string
		Metadata   struct{ Name string }
		Type       string `yaml:",omitempty"`
	}
	item struct {
		Key, Path string
		Mode      int `yaml:",omitempty"`
	}
	projection struct {
		Name  string
		Items []item
	}
	volumeSource struct {
		ConfigMap *projection `yaml:"configMap,omitempty"`
		Secret    *projection `yaml:",omitempty"`
	}
)

// writeManifests writes the files of OUT, and removes the Secrets of an earlier export. It changes no other files.
func (e *exporter) writeManifests(maps, hidden [][]mountedFile) error {
	if err := os.MkdirAll(e.out, 0o750); err != nil {
		return cli.Fail(err, "")
	}
	for _, name := range []string{configMapsFile, secretsFile, patchFile} {
		path := filepath.Join(e.out, name)
		if b, err := os.ReadFile(path); err == nil && !bytes.HasPrefix(b, []byte("# "+madeBy+"\n")) {
			return cli.Fail(fmt.Errorf("%s exists, and is not of an export", path), "choose another directory for --out, or remove the file")
		}
	}
	var configMaps, secretObjects []any
	var sources []volumeSource
	for n, files := range maps {
		o, p := e.object("ConfigMap", n, files)
		configMaps, sources = append(configMaps, o), append(sources, volumeSource{ConfigMap: p})
	}
	for n, files := range hidden {
		o, p := e.object("Secret", n, files)
		secretObjects, sources = append(secretObjects, o), append(sources, volumeSource{Secret: p})
	}
	err := errors.Join(
		writeYAML(filepath.Join(e.out, configMapsFile), 0o644, madeBy, configMaps...),
		writeYAML(filepath.Join(e.out, secretsFile), 0o600, madeBy, secretObjects...),
		writeYAML(filepath.Join(e.out, patchFile), 0o644, patchComment, patch(sources)))
	if err != nil {
		return cli.Fail(err, "")
	}
	made := textutil.Amount(len(maps), "ConfigMap")
	if len(hidden) > 0 {
		made += ", " + textutil.Amount(len(hidden), "Secret")
	}
	fmt.Fprintf(e.stdout, "ok: %s in %s of %s\n", textutil.Amount(len(slices.Concat(slices.Concat(maps...), slices.Concat(hidden...))), "file"), made, e.out)
	fmt.Fprintf(e.stdout, "run: kubectl apply --server-side -f %s && kubectl patch deployment chancery --patch-file %s\n", e.out, filepath.Join(e.out, patchFile))
	return nil
}

// object returns the manifest number n with files, and its part of the volume. n counts from 0.
func (e *exporter) object(kind string, n int, files []mountedFile) (object, *projection) {
	o := object{APIVersion: "v1", Kind: kind, Data: map[string]string{}, BinaryData: map[string]string{}}
	o.Metadata.Name = e.configMap
	if n > 0 {
		o.Metadata.Name = fmt.Sprintf("%s-%d", e.configMap, n+1)
	}
	p := &projection{Name: o.Metadata.Name}
	for _, f := range files {
		i := item{Key: f.key, Path: f.path}
		switch {
		case f.secret:
			o.Type, i.Mode = "Opaque", 0o440
			o.Data[f.key] = base64.StdEncoding.EncodeToString(f.data)
		case isText(f.data):
			o.Data[f.key] = string(f.data)
		default:
			o.BinaryData[f.key] = base64.StdEncoding.EncodeToString(f.data)
		}
		p.Items = append(p.Items, i)
	}
	return o, p
}

// isText reports whether a file can be a text value in YAML.
func isText(data []byte) bool {
	return utf8.Valid(data) && !bytes.ContainsFunc(data, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

// madeBy is the comment at the head of each file, so that no export replaces or removes another file.
const madeBy = "Made by chancery export --configmap."

const patchComment = madeBy + "\nA patch of the Deployment: its container \"chancery\" gets the directory at /config.\nIt replaces a volume \"config\" of any kind."

// patch returns a strategic merge patch that mounts a volume of sources.
func patch(sources []volumeSource) any {
	type mount struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	}
	type container struct {
		Name         string
		VolumeMounts []mount `yaml:"volumeMounts"`
	}
	type volume struct {
		Name       string
		RetainKeys []string                         `yaml:"$retainKeys,flow"`
		Projected  struct{ Sources []volumeSource } `yaml:"projected"`
	}
	var p struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []container
					Volumes    []volume
				}
			}
		}
	}
	v := volume{Name: "config", RetainKeys: []string{"name", "projected"}}
	v.Projected.Sources = sources
	pod := &p.Spec.Template.Spec
	pod.Containers = []container{{Name: "chancery", VolumeMounts: []mount{{Name: "config", MountPath: "/config", ReadOnly: true}}}}
	pod.Volumes = []volume{v}
	return p
}

// writeYAML replaces a file by documents, or removes it if there are none.
func writeYAML(path string, mode fs.FileMode, comment string, documents ...any) error {
	if len(documents) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return disk.ReplaceShared(path, mode, func(w io.Writer) error {
		for line := range strings.Lines(comment) {
			fmt.Fprintln(w, "#", strings.TrimSpace(line))
		}
		out := yaml.NewEncoder(w)
		out.SetIndent(2)
		for _, d := range documents {
			if err := out.Encode(d); err != nil {
				return err
			}
		}
		return out.Close()
	})
}
