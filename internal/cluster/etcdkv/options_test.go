package etcdkv

import "testing"

// The prefix of a URL is the start of all keys, without the slash before it.
func TestKeysBeginWithPrefix(t *testing.T) {
	for url, want := range map[string]string{"etcd://h/prod": "prod/head", "etcd://h:1,i:2/prod/": "prod/head", "etcd://h/a/b": "a/b/head"} {
		o, err := Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Key("head"); got != want {
			t.Errorf("%s: the key %q, want %q", url, got, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
