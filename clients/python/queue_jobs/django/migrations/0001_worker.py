"""The extension, and the worker whose jobs are Django's tasks. The database's owner, or a role with CREATE on it, may create the extension."""

from django.contrib.postgres.operations import CreateExtension
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = []
    operations = [
        CreateExtension("queue_jobs"),
        migrations.RunSQL("SELECT queue_jobs.define_worker('django_tasks')", "SELECT queue_jobs.drop_worker('django_tasks')"),
    ]
