"""`python -m admission_webhook serve|certs`: the webhook, and the certificates that it serves with."""

import argparse
import sys

from admission_webhook import certs, serve
from reservation_core.runtime.processes.programs import describe_settings
from reservation_core.runtime.settings.components import CommonSettings


def main(arguments: list[str]) -> int:
    """Run the sub-command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m admission_webhook",
        description="Answers the API server's question about pods that people create: may it be, and what does it see?",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser(
        "serve",
        help="answer over TLS, until SIGTERM or SIGINT",
        description="Answers POST /mutate, and POST /enforce where bookings are enforced, over TLS until SIGTERM or"
        " SIGINT. The files are read again when they change.",
        epilog=describe_settings(serve.SETTINGS),
    )
    serve.add_arguments(serving)
    keeping = commands.add_parser(
        "certs",
        help="make the certificates, and keep them valid and trusted",
        description="Makes an authority and a serving certificate; stores them in a Secret, or writes files.",
        epilog=describe_settings(CommonSettings),
    )
    certs.add_arguments(keeping)
    chosen = parser.parse_args(arguments)
    return serve.run(serving, chosen) if chosen.command == "serve" else certs.run(keeping, chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
