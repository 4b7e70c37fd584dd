package dns

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// ask encodes a question, with EDNS or without it.
func (q question) ask(id uint16, edns bool) ([]byte, dnsmessage.Question, error) {
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
	if err == nil && edns {
		err = addEDNS(&b)
	}
	if err != nil {
		return nil, asked, err
	}
	packed, err := b.Finish()
	return packed, asked, err
}

func addEDNS(b *dnsmessage.Builder) error {
	var opt dnsmessage.ResourceHeader
	err := opt.SetEDNS0(sizeUDP, dnsmessage.RCodeSuccess, false)
	if err == nil {
		err = b.StartAdditionals()
	}
	if err == nil {
		err = b.OPTResource(opt, dnsmessage.OPTResource{})
	}
	return err
}

// errOther means that a message does not answer the question.
var errOther = errors.New("not an answer to the question")

// answers begins to parse an answer to a question. A server that cannot read the question may leave it out of its error.
func answers(message []byte, id uint16, asked dnsmessage.Question) (p dnsmessage.Parser, h dnsmessage.Header, err error) {
	h, err = p.Start(message)
	if err != nil {
		return p, h, err
	}
	if !h.Response || h.ID != id || h.OpCode != 0 {
		return p, h, errOther
	}
	q, err := p.Question()
	if errors.Is(err, dnsmessage.ErrSectionDone) && isError(h.RCode) {
		return p, h, nil
	}
	if err != nil || q.Type != asked.Type || q.Class != asked.Class || !strings.EqualFold(q.Name.String(), asked.Name.String()) {
		return p, h, errOther
	}
	return p, h, p.SkipAllQuestions()
}

// An errorCode is a response code that leaves open whether the name has records.
type errorCode dnsmessage.RCode

func (c errorCode) Error() string { return "the server answers " + codeName(dnsmessage.RCode(c)) }

// isError reports whether a response code leaves open whether the name has records.
func isError(c dnsmessage.RCode) bool {
	return c != dnsmessage.RCodeSuccess && c != dnsmessage.RCodeNameError
}

// refusesEDNS reports whether an error is of a server that may not know EDNS. RFC 6891, section 7: such servers
// answer FORMERR or NOTIMP, and those of a later EDNS version BADVERS.
func refusesEDNS(err error) bool {
	code, is := errors.AsType[errorCode](err)
	return is && (code == errorCode(dnsmessage.RCodeFormatError) || code == errorCode(dnsmessage.RCodeNotImplemented) || code == badVersion)
}

// badVersion is BADVERS, an extended response code.
const badVersion = 16

// read parses an answer. Without records it is an error, unless their absence is certain (SAFE-17).
func (q question) read(p dnsmessage.Parser, h dnsmessage.Header) (answer, error) {
	if isError(h.RCode) {
		return answer{}, errorCode(h.RCode)
	}
	if h.Truncated {
		return answer{}, errTruncated
	}
	all, bad := q.readAnswers(&p)
	a := answer{ttl: -1, bad: bad}
	of, err := a.follow(q, all)
	if err != nil || len(a.records) > 0 {
		return a, err
	}
	if bad != nil {
		return answer{}, bad
	}
	rest, err := readRest(&p)
	switch {
	case err != nil:
		return answer{}, err
	case rest.code(h.RCode) != h.RCode:
		return answer{}, errorCode(rest.code(h.RCode))
	case !h.Authoritative && !h.RecursionAvailable:
		return answer{}, errors.New("the server has no data for the name and does not recurse")
	case of.unusable != "":
		return answer{}, errors.New(of.unusable)
	}
	a.unknown = h.RCode == dnsmessage.RCodeNameError
	switch {
	case a.unknown || of.absent || rest.soa != nil:
		a.negative(rest)
	case rest.referral:
		return answer{}, errors.New("the server refers to other servers and does not ask them")
	case len(of.names) > 1:
		a.alias = of.names[len(of.names)-1]
		return a, valid(a.alias)
	}
	return a, nil
}

// readAnswers reads the records of the type and the aliases. The error is about the first one that cannot be read.
func (q question) readAnswers(p *dnsmessage.Parser) (all []dnsmessage.Resource, bad error) {
	for n := 1; ; n++ {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return all, bad
		}
		r := dnsmessage.Resource{Header: h}
		at := *p // a record that cannot be read leaves the parser inside it
		if err == nil && (h.Type == q.typ || h.Type == dnsmessage.TypeCNAME) {
			r, err = at.Answer()
			if size := addressSize[h.Type]; err == nil && size != 0 && h.Length != size {
				err = fmt.Errorf("it has %d bytes", h.Length)
			}
		}
		if err == nil {
			all = append(all, r)
		} else if bad == nil {
			bad = fmt.Errorf("record %d of the answer cannot be read: %w", n, err)
		}
		if err := p.SkipAnswer(); err != nil { // the rest is missing
			return all, cmp.Or(bad, err)
		}
	}
}

// addressSize is the size of an address in bytes. The parser does not check it.
var addressSize = map[dnsmessage.Type]uint16{dnsmessage.TypeA: 4, dnsmessage.TypeAAAA: 16}

// A chain has the aliases of a host in an answer, and the reason why the answer has no record of the host.
type chain struct {
	names    []string // the host, and the aliases that CNAME records lead to, in their order
	absent   bool     // an SRV record means that the service does not exist
	unusable string   // why the answer is not understood, if it has no usable record
}

// follow takes the records of the host from an answer. The order of records of different names has no meaning.
func (a *answer) follow(q question, all []dnsmessage.Resource) (is chain, err error) {
	of := map[string][]dnsmessage.Resource{}
	for _, r := range all {
		if r.Header.Class == dnsmessage.ClassINET {
			owner := hostOf(r.Header.Name)
			of[owner] = append(of[owner], r)
		}
	}
	if len(all) > 0 {
		is.unusable = "the answer has records of other names or types only"
	}
	is.names = []string{q.host}
	for followed := 0; followed < len(is.names); {
		name := is.names[followed]
		followed++
		for _, r := range of[name] {
			if c, alias := r.Body.(*dnsmessage.CNAMEResource); alias {
				is.add(hostOf(c.CNAME))
			} else if r.Header.Type == q.typ {
				a.take(r.Body, &is)
			} else {
				continue
			}
			a.wait(r.Header.TTL)
		}
		if most := q.most(); len(a.records) > most || len(is.names) > most {
			return is, fmt.Errorf("more than %d records", most)
		}
	}
	return is, nil
}

// add adds an alias.
func (c *chain) add(alias string) {
	c.unusable = ""
	if slices.Contains(c.names, alias) {
		c.unusable = "the aliases of the name form a loop"
		return
	}
	c.names = append(c.names, alias)
}

// take adds a record to the answer if it is usable.
func (a *answer) take(body dnsmessage.ResourceBody, is *chain) {
	one, usable := recordOf(body)
	switch {
	case !usable:
		is.unusable = "no record of the answer is usable"
	case one == (record{}):
		is.absent, is.unusable = true, ""
	default:
		a.records = append(a.records, one)
	}
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

// rest has the facts about an answer that are outside its list of answers.
type rest struct {
	soa      []uint32 // seconds that limit the validity of an absence; nil: there is no SOA record
	referral bool     // there are servers of a zone, and no SOA record: RFC 2308, section 2.2
	opt      *dnsmessage.ResourceHeader
}

// readRest reads the authority and additional sections of an answer.
func readRest(p *dnsmessage.Parser) (is rest, err error) {
	authorities, err := p.AllAuthorities()
	if err != nil {
		return is, err
	}
	for _, r := range authorities {
		switch body := r.Body.(type) {
		case *dnsmessage.SOAResource:
			is.soa = append(is.soa, r.Header.TTL, body.MinTTL)
		case *dnsmessage.NSResource:
			is.referral = true
		}
	}
	additionals, err := p.AllAdditionals()
	for _, r := range additionals {
		if r.Header.Type == dnsmessage.TypeOPT {
			is.opt = &r.Header
		}
	}
	return is, err
}

// code is the response code with its upper bits, which are in the OPT record.
func (r rest) code(lower dnsmessage.RCode) dnsmessage.RCode {
	if r.opt == nil {
		return lower
	}
	return r.opt.ExtendedRCode(lower)
}

// negative sets the validity of an answer without records. RFC 2308: "the minimum of the MINIMUM field
// of the SOA record and the TTL of the SOA itself".
func (a *answer) negative(r rest) {
	for _, seconds := range r.soa {
		a.wait(seconds)
	}
}

// recordOf returns the content of a record, and whether it is usable. The zero record means that the service does
// not exist.
func recordOf(body dnsmessage.ResourceBody) (is record, usable bool) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		is.addr = netip.AddrFrom4(r.A)
	case *dnsmessage.AAAAResource:
		is.addr = netip.AddrFrom16(r.AAAA).Unmap()
	case *dnsmessage.SRVResource:
		target := hostOf(r.Target)
		if target == "" { // RFC 2782: "A Target of "." means that the service is decidedly not available"
			return record{}, true
		}
		return record{target: target, port: int(r.Port), priority: int(r.Priority), weight: int(r.Weight)}, valid(target) == nil && r.Port > 0
	default:
		return record{}, false
	}
	// Servers that block a name answer 0.0.0.0. The server of the endpoints refuses all of these.
	return is, !is.addr.IsUnspecified() && !is.addr.IsMulticast() && is.addr != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

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
	case badVersion:
		return "BADVERS"
	}
	return strings.TrimPrefix(c.String(), "RCode")
}
