package lastgood

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/chancery-xds/chancery/internal/disk"
)

// MaxAccepted is the maximum size of the stored evidence.
const MaxAccepted = 32 << 20

// acceptedName is a file of its own, which earlier versions of this program ignore.
const acceptedName = "accepted"

// serverName is the file with the name of the server.
const serverName = "server-name"

const (
	acceptedHead  = acceptedTitle + "1\n"
	acceptedTitle = "chancery accepted versions " // and the format
)

// ErrNewer means that a newer version of this program wrote a file.
var ErrNewer = errors.New("written by a newer version of Chancery")

// SaveAccepted stores which versions clients accepted (HEAL-3). While another program has the lock of the
// folder, the error is [disk.ErrBusy]. With WithoutSecrets it stores nothing, because the bodies of replaced
// versions may have secrets. It stores also while the configuration cannot be stored ([Keeper.Storing]).
func (k *Keeper) SaveAccepted(data []byte) error {
	select {
	case <-k.locked:
	default:
		return disk.ErrBusy
	}
	if k.WithoutSecrets {
		return nil
	}
	k.replacing.Lock()
	defer k.replacing.Unlock()
	return disk.Replace(filepath.Join(k.dir, acceptedName), 0o600, func(w io.Writer) error {
		sum := sha256.Sum256(data)
		_, err := w.Write(append(append([]byte(acceptedHead), sum[:]...), data...))
		return err
	})
}

// LoadAccepted returns the stored evidence. The error is [os.ErrNotExist] if there is none, and [ErrNewer] if the
// caller must leave the file in place.
func (k *Keeper) LoadAccepted() ([]byte, error) {
	path := filepath.Join(k.dir, acceptedName)
	b, err := k.read(acceptedName, MaxAccepted)
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b, []byte(acceptedHead))
	format, _, _ := bytes.Cut(bytes.TrimPrefix(b, []byte(acceptedTitle)), []byte("\n"))
	n, err := strconv.Atoi(string(format))
	if err == nil && n > 1 {
		return nil, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	if !ok || len(rest) < sha256.Size {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	data := rest[sha256.Size:]
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	return data, nil
}

// RemoveAccepted removes the stored evidence.
func (k *Keeper) RemoveAccepted() error {
	err := os.Remove(filepath.Join(k.dir, acceptedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// ServerName returns a random name that stays the same after a restart. The error is [disk.ErrBusy] while another
// program has the lock of the folder: the name is that of the other program.
func (k *Keeper) ServerName() (string, error) {
	select {
	case <-k.locked:
	default:
		return "", disk.ErrBusy
	}
	path := filepath.Join(k.dir, serverName)
	if b, err := k.read(serverName, 100); err == nil && len(b) > 0 {
		return string(b), nil
	}
	name := rand.Text()
	k.replacing.Lock()
	defer k.replacing.Unlock()
	return name, disk.Replace(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, name)
		return err
	})
}
