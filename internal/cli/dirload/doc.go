// Package dirload has what commands share that load a directory of resources: flags, checks and warnings.
package dirload
