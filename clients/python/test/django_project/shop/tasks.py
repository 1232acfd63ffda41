from django.db import connection, transaction
from queue_jobs.django import enqueue_options

from .models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def book(number):
    Order.objects.create(number=number)
    with transaction.atomic():
        return Order.objects.filter(number=number).count()


@task(takes_context=True)
def fail_once(context, number):
    Order.objects.create(number=number)
    if context.attempt == 1:
        raise ValueError(f"no\nnumber {number}")
    return context.attempt


@task(takes_context=True)
def roll_back(context):
    if context.attempt == 1:
        Order.objects.create(number=1)
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")


@task
def work_as(role):
    with connection.cursor() as cursor:
        cursor.execute(role)
        cursor.execute("SELECT current_user")
        return cursor.fetchone()[0]


@task(priority=10, queue_name="mails")
async def add(a, *, b):
    return a + b


@task
def book_and_tell(number):
    """What on_commit() does can see what was committed."""
    Order.objects.create(number=number)
    transaction.on_commit(lambda: book.enqueue(number + 1))
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
    except Exception:
        pass
    return connection.in_atomic_block


@task
@enqueue_options(tags=["search"], max_retries=0, if_waiting="replace", dedup_key=lambda number, **words: f"index {number}")
def index(number, word=None):
    pass


@task
@enqueue_options(if_waiting="debounce", max_delay="1 hour", dedup_key="quiet")
def quiet():
    pass
