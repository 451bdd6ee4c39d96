package LinesEndWithCRLF;

# Loaded before a test of nginx's suite (PERL5OPT=-MLinesEndWithCRLF): a request whose lines end with a bare LF is sent
# with CR LF. Bodies stay as they are.

use strict;
use warnings;
use IO::Handle;

my $print = \&IO::Handle::print;

no warnings 'redefine';

*IO::Handle::print = sub {
	my $handle = shift;
	return $handle->$print(@_) unless $handle->isa('IO::Socket');
	return $handle->$print(map { converted($_) } @_);
};

sub converted {
	my ($text) = @_;
	my $out = '';

	while ($text =~ s!\A([A-Z]+ [^\x0a]* HTTP/\d\.\d\x0d?\x0a(?:[^\x0d\x0a][^\x0a]*\x0a)*(?:\x0d?\x0a)?)!!) {
		my $head = $1;
		my ($length) = $head =~ /^content-length: *(\d+)\x0d?$/mi;
		$head =~ s/(?<!\x0d)\x0a/\x0d\x0a/g;
		$out .= $head;
		$out .= substr($text, 0, $length, '') if $length and $length <= length $text;
	}

	return $out . $text;
}

1;
