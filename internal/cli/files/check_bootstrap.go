package files

import (
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
)

// bootstraps reads the bootstraps of the Envoys whose resources are checked: the file of --bootstrap, or
// in each directory the file that an import has written. It returns the problems in these files.
func (k *checker) bootstraps(args []string) (wrong []findings.Problem) {
	add := func(path string, m proto.Message, problems []findings.Problem) {
		wrong = append(wrong, problems...)
		if m != nil {
			k.bootstrapFiles, k.opts.Bootstraps = append(k.bootstrapFiles, path), append(k.opts.Bootstraps, m)
		}
	}
	if k.bootstrap != "" {
		m, problems := dirload.ReadBootstrap(k.bootstrap, k.opts, func() (*os.File, error) { return os.Open(k.bootstrap) })
		add(k.bootstrap, m, problems)
		return wrong
	}
	var seen []string
	for _, dir := range args {
		path := filepath.Join(dir, importer.BootstrapFile)
		if slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		m, problems := dirload.Bootstrap(dir, k.opts)
		add(path, m, problems)
	}
	return wrong
}
