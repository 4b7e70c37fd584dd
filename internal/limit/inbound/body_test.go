package inbound

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An upload is a client that sends a body, with a goroutine that reads the body.
type upload struct {
	*Body
	to   *io.PipeWriter
	done chan error // the error of the reader
}

func (r *rig) upload(at address) *upload {
	from, to := io.Pipe()
	u := &upload{to: to, done: make(chan error, 1)}
	u.Body = r.Body(from, at, func() { from.CloseWithError(errors.New("stopped")) })
	go func() {
		_, err := io.Copy(io.Discard, u.Body)
		u.done <- err
	}()
	return u
}

type reading func([]byte) (int, error)

func (f reading) Read(p []byte) (int, error) { return f(p) }

// refusals returns the refused connections.
func (r *rig) refusals() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refused)
}

// sends sends n bytes, as far as the body is read.
func (u *upload) sends(n int) {
	go u.to.Write(make([]byte, n))
	synctest.Wait()
}

// "What a client can make the server hold or do is bounded per stream, per peer and in all,
// in bytes and in time, from the first byte" (SAFE-9), over HTTP too.
func TestBody(t *testing.T) {
	within(t, "SAFE-9 a body counts from 64 KiB on until it is closed", 4<<20, func(r *rig) {
		u := r.upload("a")
		u.sends(60 * k)
		if n := r.Used(); n != 0 {
			r.Errorf("%d", n)
		}
		u.sends(40 * k)
		if n := r.Used(); n != 100*k {
			r.Errorf("%d", n)
		}
		u.to.Close()
		if err := <-u.done; err != nil {
			r.Error(err)
		}
		time.Sleep(time.Minute) // the body is complete, so the client is not responsible for the time of its handling
		if n := r.Used(); n != 100*k {
			r.Errorf("%d", n)
		}
		u.Close()
		u.Close()
		if n := r.Used(); n != 0 || len(r.refusals()) != 0 {
			r.Errorf("%d, %v", n, r.refusals())
		}
	})
	within(t, "SAFE-9 a small body never counts", 4<<20, func(r *rig) {
		u := r.upload("a")
		u.sends(60 * k)
		u.to.Close()
		if err := <-u.done; err != nil || r.Used() != 0 {
			r.Error(err, r.Used())
		}
		u.Close()
	})
	within(t, "SAFE-9 a body that is read after its end counts once", 4<<20, func(r *rig) {
		b := r.Body(bytes.NewReader(make([]byte, 100*k)), address("a"), func() {})
		_, _ = io.Copy(io.Discard, b)
		for range 3 {
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				r.Error(err)
			}
		}
		if n := r.Used(); n != 100*k {
			r.Errorf("%d", n)
		}
		if b.Close(); r.Used() != 0 {
			r.Errorf("%d", r.Used())
		}
	})
	within(t, "SAFE-9 a body that ends while it is refused releases its bytes only once", 4<<20, func(r *rig) {
		var b *Body
		b = r.Body(reading(func(p []byte) (int, error) {
			b.conn.refuse(TooSlow)
			return len(p), io.EOF
		}), address("a"), func() {})
		if _, err := b.Read(make([]byte, 100*k)); !errors.Is(err, ErrRefused) {
			r.Error("the body counts as complete:", err)
		}
		if b.Close(); r.Used() != 0 {
			r.Errorf("%d", r.Used())
		}
	})
	within(t, "SAFE-9 a body that arrives slowly but steadily is accepted", 4<<20, func(r *rig) {
		u := r.upload("a")
		u.sends(100 * k)
		for range 10 {
			time.Sleep(15*time.Second + tick/2)
			u.sends(65 * k)
		}
		u.to.Close()
		if err := <-u.done; err != nil || len(r.refusals()) != 0 {
			r.Error(err, r.refusals())
		}
		u.Close()
	})
	within(t, "SAFE-9 a body that does not come on is refused", 4<<20, func(r *rig) {
		u := r.upload("a")
		u.sends(100 * k)
		time.Sleep(21 * time.Second)
		if err := <-u.done; err == nil {
			r.Error("the body was read to its end")
		}
		if u.Close(); r.Used() != 0 || len(r.refusals()) != 1 || r.refusals()[0] != "a: "+string(TooSlow) {
			r.Errorf("%d, %v", r.Used(), r.refusals())
		}
	})
	within(t, "SAFE-9 bodies wait for room, and take turns", 1<<20, func(r *rig) {
		var crowd []*upload
		for range 20 {
			u := r.upload("greedy")
			u.sends(200 * k)
			crowd = append(crowd, u)
		}
		if n := r.Used(); n > 20*(64+32)*k+200*k { // each body above 64 KiB waits, except one that is read
			r.Errorf("%d are held", n)
		}
		good := r.upload("good")
		good.sends(500 * k)
		good.to.Close()
		start := time.Now()
		if err := <-good.done; err != nil || time.Since(start) > 10*time.Second {
			r.Errorf("%v after %v", err, time.Since(start))
		}
		good.Close()
		for _, u := range crowd {
			<-u.done
			u.Close()
		}
		if r.Used() != 0 || len(r.refusals()) != 20 {
			r.Errorf("%d, %v", r.Used(), r.refusals())
		}
	})
	within(t, "SAFE-9 a body that alone has more than all may have is refused", 256*k, func(r *rig) {
		u := r.upload("a")
		u.sends(300 * k)
		if err := <-u.done; !errors.Is(err, ErrRefused) {
			r.Error(err)
		}
		if u.Close(); r.Used() != 0 || len(r.refusals()) != 1 || r.refusals()[0] != "a: "+string(TooMuch) {
			r.Errorf("%d, %v", r.Used(), r.refusals())
		}
	})
	within(t, "the function stop is not called after the body was closed", 4<<20, func(r *rig) {
		stopped := false
		from, to := io.Pipe()
		b := r.Body(from, address("a"), func() { stopped = true })
		go to.Write(make([]byte, 100*k))
		_, _ = io.CopyN(io.Discard, b, 100*k)
		b.Close()
		if r.Used() != 0 {
			r.Error("a closed body counts:", r.Used())
		}
		time.Sleep(time.Hour)
		if stopped || len(r.refusals()) != 0 {
			r.Error(stopped, r.refusals())
		}
		to.Close()
	})
}
