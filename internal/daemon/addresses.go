package daemon

import (
	"fmt"

	"github.com/chancery-xds/chancery/internal/listen"
)

// checkAddresses returns a usage error if two listeners have the same address. With the system's
// error, a user would look for another program that uses the address.
func (c *Config) checkAddresses() error {
	flags := make(map[listen.Address]string)
	add := func(flag string, a listen.Address) error {
		first, taken := flags[a]
		switch {
		case a == listen.Address{}, a.Network == "tcp" && a.Port == 0: // no address, or port 0
			return nil
		case taken && first == flag:
			return fmt.Errorf("--%s: %s is given twice", flag, a)
		case taken:
			return fmt.Errorf("--%s and --%s: both use the address %s", first, flag, a)
		}
		flags[a] = flag
		return nil
	}
	for _, a := range c.listening.parsed {
		if err := add("listen", a); err != nil {
			return err
		}
	}
	if err := add("rest-listen", c.rest.parsed); err != nil {
		return err
	}
	if c.admin.chosen {
		for _, a := range c.admin.parsed {
			if err := add("admin-listen", a); err != nil {
				return err
			}
		}
	}
	return add("metrics-listen", c.health.parsed)
}
