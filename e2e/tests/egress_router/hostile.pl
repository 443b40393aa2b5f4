# Attempts of a program in a pod to reach an address past the allow-list. Whether something has left is counted outside; a refused attempt
# is no error.
#
#   perl - ATTEMPT OWN TO
#
# OWN is the pod's address on the attachment, TO the address to reach. The environment has INTERFACE, INDEX and MAC of the attachment, the
# same of the primary interface as PRIMARY_INDEX and PRIMARY_MAC, with its address PRIMARY, the gateways' GATEWAY_MAC and NODE_MAC, and a
# LISTED host.
use strict;
use warnings;
use Socket qw(:DEFAULT inet_pton pack_sockaddr_in6 AF_INET6);

my ($attempt, $own, $to) = @ARGV;
my $v6 = $to =~ /:/;
my $family = $v6 ? AF_INET6 : AF_INET;
my ($IP, $IPV6, $ICMP, $UDP, $ICMPV6, $RAW) = (0, 41, 1, 17, 58, 255);
my ($SO_BINDTODEVICE, $SO_MARK, $IP_FREEBIND, $IPV6_FREEBIND) = (25, 36, 15, 78);
my $data = 'past the list ' x 4;

sub bytes { inet_pton($family, shift) }
sub at { my ($ip, $port) = @_; $v6 ? pack_sockaddr_in6($port, bytes($ip)) : pack_sockaddr_in($port, bytes($ip)) }
sub mac { pack 'H*', join '', split /:/, shift }

sub checksum {
  my $sum = 0;
  $sum += $_ for unpack 'n*', shift;
  $sum = ($sum & 0xffff) + ($sum >> 16) for 1 .. 2;
  return ~$sum & 0xffff;
}

sub packet {
  my ($from, $dst, $protocol, $payload, $fragment) = @_;
  return pack('NnCCa16a16', 0x60000000, length $payload, $protocol, 64, bytes($from), bytes($dst)) . $payload if $v6;
  my $header = pack 'CCnnnCCna4a4', 0x45, 0, 20 + length $payload, 7, $fragment // 0, 64, $protocol, 0, bytes($from), bytes($dst);
  substr($header, 10, 2) = pack 'n', checksum($header);
  return $header . $payload;
}

sub datagram {
  my ($from, $dst, $source, $destination) = @_;
  my $udp = pack('nnnn', $source, $destination, 8 + length $data, 0) . $data;
  my $pseudo = $v6 ? pack('a16a16NN', bytes($from), bytes($dst), length $udp, $UDP) : '';
  substr($udp, 6, 2) = pack 'n', checksum($pseudo . $udp . (length($udp) % 2 ? "\0" : '')) if $v6;
  return $udp;
}

sub open_socket {
  my ($type, $protocol) = @_;
  socket(my $socket, $family, $type, $protocol) or return;
  return $socket;
}

sub bound {
  my ($ip, $port) = @_;
  my $socket = open_socket(SOCK_DGRAM, 0);
  setsockopt $socket, $v6 ? $IPV6 : $IP, $v6 ? $IPV6_FREEBIND : $IP_FREEBIND, pack 'i', 1;
  bind($socket, at($ip, $port)) or return;
  return $socket;
}

sub raw {
  my ($packet, $dst, $device) = @_;
  my $socket = open_socket(SOCK_RAW, $RAW) or return;
  setsockopt $socket, SOL_SOCKET, $SO_BINDTODEVICE, "$device\0" if $device;
  send $socket, $packet, 0, at($dst, 0);
}

sub frame {
  my ($index, $from, $mac, $type, $payload) = @_;
  socket(my $socket, 17, SOCK_RAW, 0x0300) or return;
  my $frame = mac($mac) . mac($from) . $type . $payload;
  send $socket, $frame, 0, pack 'SniSCCa8', 17, 0x0800, $index, 0, 0, 6, mac($mac);
}

# Waits for what was sent to this socket; it may not arrive.
sub arrived {
  my $socket = shift;
  my $set = '';
  vec($set, fileno $socket, 1) = 1;
  return select $set, undef, undef, 1;
}

# A datagram from TO to this pod, over the loopback: conntrack takes TO for the client.
sub forged {
  my $socket = bound($own, 4000) or return;
  if (my $other = bound($to, 5000)) { send $other, $data, 0, at($own, 4000) }
  raw(packet($to, $own, $UDP, datagram($to, $own, 5000, 4000)), $own);
  arrived($socket);
  return $socket;
}

# A datagram by the attachment, from any address.
sub sent {
  my ($from, $dst, $source, $destination) = @_;
  if (my $socket = bound($from, $source)) {
    setsockopt $socket, SOL_SOCKET, $SO_BINDTODEVICE, "$ENV{INTERFACE}\0";
    send $socket, $data, 0, at($dst, $destination);
  }
  raw(packet($from, $dst, $UDP, datagram($from, $dst, $source, $destination)), $dst, $ENV{INTERFACE});
}

my %attempts = (
  datagram => sub {
    my $socket = bound($own, 4000) or return;
    setsockopt $socket, SOL_SOCKET, $SO_BINDTODEVICE, "$ENV{INTERFACE}\0";
    send $socket, $data, 0, at($to, 5000);
  },
  # The marks of the plugin's connections and of the first slots.
  marks => sub {
    for my $mark (0x10000, 0x1000000, 0x1010000, 0xffffffff) {
      my $socket = bound($own, 4000) or next;
      setsockopt $socket, SOL_SOCKET, $SO_MARK, pack 'L', $mark;
      setsockopt $socket, SOL_SOCKET, $SO_BINDTODEVICE, "$ENV{INTERFACE}\0";
      send $socket, $data, 0, at($to, 5000);
    }
  },
  reply => sub {
    my $socket = forged() or return;
    send $socket, $data, 0, at($to, 5000);
  },
  # An ICMP error about such a connection: it goes to its client.
  error => sub {
    forged() or return;
    my $about = packet($to, $own, $UDP, datagram($to, $own, 5000, 4000));
    my $socket = open_socket(SOCK_RAW, $v6 ? $ICMPV6 : $ICMP) or return;
    bind $socket, at($own, 0);
    my $message = pack($v6 ? 'CCnN' : 'CCnN', $v6 ? (1, 4) : (3, 3), 0, 0) . $about;
    substr($message, 2, 2) = pack 'n', checksum($message . (length($message) % 2 ? "\0" : '')) unless $v6;
    send $socket, $message, 0, at($to, 0);
  },
  # The node forwards a frame of the primary interface back to it: the connection arrives there. Its replies go to the attachment.
  hairpin => sub {
    my $socket = bound($ENV{PRIMARY}, 4001) or return;
    my $type = $v6 ? "\x86\xdd" : "\x08\x00";
    my $first = packet($to, $ENV{PRIMARY}, $UDP, datagram($to, $ENV{PRIMARY}, 5001, 4001));
    frame($ENV{PRIMARY_INDEX}, $ENV{PRIMARY_MAC}, $ENV{NODE_MAC}, $type, $first);
    arrived($socket);
    setsockopt $socket, SOL_SOCKET, $SO_BINDTODEVICE, "$ENV{INTERFACE}\0";
    send $socket, $data, 0, at($to, 5001);
  },
  # A datagram from TO to a listed host has SNAT. The kernel translates its reply, made here, back to TO, and routes it again.
  translated => sub {
    sent($to, $ENV{LISTED}, 4006, 5006);
    sent($ENV{LISTED}, $own, 5006, 4006);
  },
  # The node forwards frames of the primary interface back to it: port 53 is redirected to the listed host, the other port follows. The kernel
  # translates a reply, made here, back to its client.
  redirected => sub {
    my $socket = bound($ENV{PRIMARY}, 4007) or return;
    my $type = $v6 ? "\x86\xdd" : "\x08\x00";
    for my $port (53, 4007) {
      my $packet = packet($to, $ENV{PRIMARY}, $UDP, datagram($to, $ENV{PRIMARY}, 5007, $port));
      frame($ENV{PRIMARY_INDEX}, $ENV{PRIMARY_MAC}, $ENV{NODE_MAC}, $type, $packet);
    }
    arrived($socket);
    sent($ENV{LISTED}, $own, 53, 5007);
  },
  # Messages that a link needs, to a host behind a router.
  discovery => sub {
    for my $type (131, 132, 133, 135, 136, 143) {
      my $socket = open_socket(SOCK_RAW, $ICMPV6) or return;
      bind $socket, at($own, 0);
      send $socket, pack('CCnN', $type, 0, 0, 0) . $data, 0, at($to, 0);
    }
  },
  raw => sub {
    raw(packet($own, $to, 253, $data), $to, $ENV{INTERFACE});
    raw(packet($ENV{PRIMARY}, $to, $UDP, datagram($ENV{PRIMARY}, $to, 4002, 5002)), $to, $ENV{INTERFACE});
    raw(packet($own, $to, $UDP, datagram($own, $to, 4003, 5003), 0x2000), $to, $ENV{INTERFACE}) unless $v6;
  },
  # A TCP segment without SYN: as of a connection that is older than the attachment.
  segment => sub {
    my $segment = pack('nnNNCCnnn', 4004, 5004, 7, 7, 0x50, 0x18, 512, 0, 0) . $data;
    raw(packet($ENV{PRIMARY}, $to, 6, $segment), $to, $ENV{INTERFACE});
    raw(packet($own, $to, 6, $segment), $to, $ENV{INTERFACE});
  },
  frames => sub {
    my $type = $v6 ? "\x86\xdd" : "\x08\x00";
    for my $mac ($ENV{GATEWAY_MAC}, 'ff:ff:ff:ff:ff:ff') {
      for my $from ($own, $ENV{PRIMARY}) {
        my $packet = packet($from, $to, $UDP, datagram($from, $to, 4005, 5005));
        frame($ENV{INDEX}, $ENV{MAC}, $mac, $type, $packet);
        frame($ENV{INDEX}, '02:00:5e:00:53:66', $mac, $type, $packet);
        # In a VLAN, and with a length in place of a type.
        frame($ENV{INDEX}, $ENV{MAC}, $mac, "\x81\x00\x00\x07$type", $packet);
        frame($ENV{INDEX}, $ENV{MAC}, $mac, pack('n', length $packet), $packet);
      }
    }
  },
);
$attempts{$attempt}->();
