"""Create the senders of notifications from settings."""

import ssl

from reservation_core.adapters.notices.security import SmtpSecurity
from reservation_core.domain.network.egress import egress_rules
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.notices import NoticeSender, NoticeSenders
from reservation_core.runtime.client_tls import client_tls
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.settings.error import SettingsError


def notice_senders(settings: ProcessorSettings, clock: Clock) -> NoticeSenders:
    """A sender for every configured channel. Raises SettingsError."""
    # Imported only by processes that deliver.
    from reservation_core.adapters.notices.webhooks import PostRules, SlackSender, WebhookSender  # noqa: PLC0415

    notices = settings.notices
    tls = client_tls(notices.ca_file, "GPU_DEV_NOTICES__CA_FILE")
    rules = PostRules(egress_rules(notices.allow, public=notices.public), notices.timeout_s, tls)
    senders: dict[NoticeChannel, NoticeSender] = {
        NoticeChannel.WEBHOOK: WebhookSender(rules, clock),
        NoticeChannel.SLACK: SlackSender(rules),
    }
    if settings.smtp.host is not None:
        senders[NoticeChannel.EMAIL] = _mail(settings, settings.smtp.host, tls, clock)
    return senders


def _mail(settings: ProcessorSettings, host: str, tls: ssl.SSLContext, clock: Clock) -> NoticeSender:
    from reservation_core.adapters.notices.smtp import MailSender, MailServer  # noqa: PLC0415

    smtp = settings.smtp
    if smtp.sender is None:
        raise SettingsError("GPU_DEV_SMTP__SENDER is not set. Set it to the address that notifications come from.")
    if (smtp.user is None) != (settings.smtp_password is None):
        raise SettingsError("Set both GPU_DEV_SMTP__USER and GPU_DEV_SMTP_PASSWORD, or neither.")
    if smtp.user is not None and smtp.security is SmtpSecurity.NONE:
        raise SettingsError(
            "GPU_DEV_SMTP__SECURITY is none: the password would be sent in the clear. Use starttls or tls."
        )
    password = None if settings.smtp_password is None else settings.smtp_password.get_secret_value()
    server = MailServer(
        host=host,
        port=smtp.port,
        security=smtp.security,
        sender=smtp.sender,
        user=smtp.user,
        password=password,
        timeout_s=settings.notices.timeout_s,
        tls=tls,
    )
    return MailSender(server, clock)
