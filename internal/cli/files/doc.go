// Package files has the commands that read, check and write directories of resources.
package files
