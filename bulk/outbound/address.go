package outbound

import "net/netip"

// special are the ranges of public unicast space that are not public (IANA's special-purpose registries), with a
// description.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's shared address"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the host agent of Azure's machines"}, // public space, but served inside every machine
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a protocol's address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay's address"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("2001::/23"), "a protocol's address"}, // includes Teredo, which contains an IPv4 address
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"}, // contains an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	globalIPv6 = netip.MustParsePrefix("2000::/3")
)

// notPublic returns why addr is not a public unicast address, "" if it is. Addresses that contain an IPv4 address are
// checked by that.
func notPublic(addr netip.Addr) string {
	addr = addr.Unmap()
	if addr.Zone() != "" {
		return "an address with a zone"
	}
	if nat64.Contains(addr) {
		b := addr.As16()
		return notPublic(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.what
		}
	}
	if !addr.Is4() && !globalIPv6.Contains(addr) {
		return "not a public address"
	}
	return ""
}
