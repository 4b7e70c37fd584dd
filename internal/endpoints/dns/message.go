package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// sizeUDP is the largest answer over UDP, in bytes. It fits into one packet on all common networks ("DNS
// flag day 2020").
const sizeUDP = 1232

// maxTargets limits the SRV records of a name: each adds two questions.
const maxTargets = 1000

// maxAddresses limits the A records, and the AAAA records, of a host.
const maxAddresses = 1000

// errTruncated means that the question must be asked again over TCP.
var errTruncated = errors.New("truncated answer")

// ask encodes a question.
func (q question) ask(id uint16) ([]byte, dnsmessage.Question, error) {
	name, err := dnsmessage.NewName(q.host + ".")
	if err != nil {
		return nil, dnsmessage.Question{}, err
	}
	asked := dnsmessage.Question{Name: name, Type: q.typ, Class: dnsmessage.ClassINET}
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), dnsmessage.Header{ID: id, RecursionDesired: true})
	err = b.StartQuestions()
	if err == nil {
		err = b.Question(asked)
	}
	if err == nil {
		err = b.StartAdditionals()
	}
	var opt dnsmessage.ResourceHeader
	if err == nil {
		err = opt.SetEDNS0(sizeUDP, dnsmessage.RCodeSuccess, false)
	}
	if err == nil {
		err = b.OPTResource(opt, dnsmessage.OPTResource{})
	}
	if err != nil {
		return nil, asked, err
	}
	packed, err := b.Finish()
	return packed, asked, err
}

// errOther means that a message does not answer the question.
var errOther = errors.New("not an answer to the question")

// answers begins to parse an answer to a question.
func answers(message []byte, id uint16, asked dnsmessage.Question) (p dnsmessage.Parser, h dnsmessage.Header, err error) {
	h, err = p.Start(message)
	if err != nil {
		return p, h, err
	}
	q, err := p.Question()
	if err != nil || !h.Response || h.ID != id || q.Type != asked.Type || q.Class != asked.Class || !strings.EqualFold(q.Name.String(), asked.Name.String()) {
		return p, h, errOther
	}
	return p, h, p.SkipAllQuestions()
}

// read parses an answer. Only a server that can know it may answer that there are no records.
func (q question) read(p dnsmessage.Parser, h dnsmessage.Header) (answer, error) {
	switch {
	case h.Truncated:
		return answer{}, errTruncated
	case h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError:
		return answer{}, fmt.Errorf("the server answers %s", codeName(h.RCode))
	}
	a := answer{ttl: -1}
	names := map[string]bool{q.host: true} // the names that a chain of CNAME records leads to, in its order
	for {
		r, err := p.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return answer{}, err
		}
		if !names[hostOf(r.Header.Name)] || r.Header.Class != dnsmessage.ClassINET {
			continue
		}
		if c, is := r.Body.(*dnsmessage.CNAMEResource); is {
			names[hostOf(c.CNAME)] = true
		} else if one, is := recordOf(r.Body); is && r.Header.Type == q.typ {
			if one != (record{}) {
				a.records = append(a.records, one)
			}
			if most := q.most(); len(a.records) > most {
				return answer{}, fmt.Errorf("more than %d records", most)
			}
		} else {
			continue
		}
		a.wait(r.Header.TTL)
	}
	if len(a.records) > 0 {
		return a, nil
	}
	if !h.Authoritative && !h.RecursionAvailable {
		return answer{}, errors.New("the server has no data for the name and does not recurse")
	}
	a.unknown = h.RCode == dnsmessage.RCodeNameError
	return a, a.negative(p)
}

// most is the limit of records.
func (q question) most() int {
	if q.typ == dnsmessage.TypeSRV {
		return maxTargets
	}
	return maxAddresses
}

// wait limits the validity of an answer to some seconds.
func (a *answer) wait(seconds uint32) {
	// RFC 2181: "Implementations should treat TTL values received with the most significant bit set as if the entire value received was zero."
	d := time.Duration(seconds) * time.Second
	if seconds>>31 != 0 {
		d = 0
	}
	if a.ttl < 0 || d < a.ttl {
		a.ttl = d
	}
}

// negative reads the validity of an answer without records. RFC 2308: "the minimum of the MINIMUM field
// of the SOA record and the TTL of the SOA itself".
func (a *answer) negative(p dnsmessage.Parser) error {
	for {
		r, err := p.Authority()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return err
		}
		if soa, is := r.Body.(*dnsmessage.SOAResource); is {
			a.wait(r.Header.TTL)
			a.wait(soa.MinTTL)
		}
	}
}

// recordOf returns the content of a record; the zero record: nothing usable.
func recordOf(body dnsmessage.ResourceBody) (record, bool) {
	var addr netip.Addr
	switch r := body.(type) {
	case *dnsmessage.AResource:
		addr = netip.AddrFrom4(r.A)
	case *dnsmessage.AAAAResource:
		addr = netip.AddrFrom16(r.AAAA).Unmap()
	case *dnsmessage.SRVResource:
		target := hostOf(r.Target)
		if valid(target) != nil || r.Port == 0 { // RFC 2782: "A Target of "." means that the service is decidedly not available"
			return record{}, true
		}
		return record{target: target, port: int(r.Port), priority: int(r.Priority), weight: int(r.Weight)}, true
	default:
		return record{}, false
	}
	if addr.IsUnspecified() || addr.IsMulticast() { // servers that block a name answer 0.0.0.0
		return record{}, true
	}
	return record{addr: addr}, true
}

func hostOf(n dnsmessage.Name) string {
	return strings.ToLower(strings.TrimSuffix(n.String(), "."))
}

// codeName is the RFC name of a response code.
func codeName(c dnsmessage.RCode) string {
	switch c {
	case dnsmessage.RCodeFormatError:
		return "FORMERR"
	case dnsmessage.RCodeServerFailure:
		return "SERVFAIL"
	case dnsmessage.RCodeNotImplemented:
		return "NOTIMP"
	case dnsmessage.RCodeRefused:
		return "REFUSED"
	}
	return strings.TrimPrefix(c.String(), "RCode")
}
